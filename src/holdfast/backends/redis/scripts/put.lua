-- Begin a session from what was staged beside it, under its old numbers, in one step.
-- ARGV: 1 the session's name, 2 whether the index has it, 3 last, 4 floor, 5 bytes, 6 ttl or '',
-- 7 expiry or '', 8 state, 9 how many keys. KEYS: 4 staged records, 5 staged keys, 6 the index, where it is on this node.
local head = read_head()
if head.exists then
    touch(head)
    return { 'there' }
end
if not KEYS[6] and ARGV[2] ~= '1' then
    return { 'new' }
end
head.last, head.floor, head.bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
head.ttl, head.exp, head.state = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local keys = redis.call('HLEN', KEYS[5])
if redis.call('LLEN', KEYS[4]) ~= head.last - head.floor or keys ~= tonumber(ARGV[9]) then
    return { 'unstaged' } -- the staged records have a time to live: this took longer
end
if KEYS[6] then
    redis.call('ZCARD', KEYS[6]) -- fails here, not half way, if another program has that key
end
write_head(head)
redis.call('UNLINK', KEYS[2], KEYS[3])
if keys > 0 then
    redis.call('RENAME', KEYS[5], KEYS[3])
    redis.call('PERSIST', KEYS[3])
end
if head.last > head.floor then
    redis.call('RENAME', KEYS[4], KEYS[2])
    release_log(head)
end
if KEYS[6] then
    redis.call('ZADD', KEYS[6], 0, ARGV[1])
end
return { 'put' }
