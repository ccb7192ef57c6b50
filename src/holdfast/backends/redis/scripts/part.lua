-- Take names out of the index of those alive, unless somebody has written them there again since
-- they were about to go. KEYS: 1 names, 2 gone, 3 going. ARGV: 1 the ticket, 2… names.
for at = 2, #ARGV do
    if redis.call('HGET', KEYS[3], ARGV[at]) == ARGV[1] then
        redis.call('ZADD', KEYS[2], 0, ARGV[at])
        redis.call('ZREM', KEYS[1], ARGV[at])
        redis.call('HDEL', KEYS[3], ARGV[at])
    end
end
return { 'parted' }
