-- Take the name of a session that is no more, not even as a tombstone, out of both sets. Not in a cluster:
-- there a name is written before its session is.
-- KEYS: 1 its head, 2 the index, 3 those that are gone. ARGV: 1 its name.
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('ZREM', KEYS[2], ARGV[1])
    redis.call('ZREM', KEYS[3], ARGV[1])
end
return { 'unnamed' }
