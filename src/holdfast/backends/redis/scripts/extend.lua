-- Add entries and move the index of a log on, if it is where the caller saw it and the log has not
-- been forgotten or rewritten since. ARGV: 1 model, 2 after, 3 upto, 4 floor, 5 anew, 6… entries.
local head = read_head()
if head.trouble then
    return head.trouble
end
local followed, entries = index_keys()
if visible_end(head) < tonumber(ARGV[3]) or head.floor ~= tonumber(ARGV[4]) then
    return { 'position', '', '0', '0' }
end
if ARGV[5] == '1' then
    redis.call('UNLINK', followed, entries)
end
local at = redis.call('HMGET', followed, 'model', 'upto', 'floor')
if (tonumber(at[2]) or 0) ~= tonumber(ARGV[2]) or (at[1] or ARGV[1]) ~= ARGV[1] then
    return { 'position', at[1] or '', at[2] or '0', at[3] or '0' }
end
for from = 6, #ARGV, CHUNK do
    redis.call('RPUSH', entries, unpack(ARGV, from, math.min(from + CHUNK - 1, #ARGV)))
end
redis.call('HSET', followed, 'model', ARGV[1], 'upto', ARGV[3], 'floor', ARGV[4])
release_log(head)
return { 'position', ARGV[1], ARGV[3], ARGV[4] }
