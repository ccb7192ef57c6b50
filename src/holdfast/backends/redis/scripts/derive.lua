-- Add a summary, if the message up to which it was made is still there. See add.lua for the
-- arguments; the last one is that message's number. KEYS: 4 and 5 are head and log of the session,
-- 6 the index of names, where it is on this node.
local source_number = tonumber(table.remove(ARGV))
local lane_head, lane_log = KEYS[1], KEYS[2]
KEYS[1], KEYS[2] = KEYS[4], KEYS[5]
local source = read_head()
KEYS[1], KEYS[2], KEYS[4], KEYS[5], KEYS[6] = lane_head, lane_log, KEYS[6], nil, nil
if source.trouble then
    return source.trouble
end
if source_number <= source.floor or source_number > visible_end(source) then
    return { 'orphaned' }
end
local head = read_head()
if head.trouble then
    return head.trouble
end
local used = redis.call('HGET', KEYS[3], ARGV[5])
if used and head.exists then
    return repeated(head, used)
end
local refusal = refuse(head)
if refusal then
    return refusal
end
if head.state ~= 'live' then
    clear(head)
end
local first = add(head)
head.ttl, head.exp = source.ttl, source.exp -- it expires with the session
write_head(head)
release_log(head)
local numbers = whole(first) .. ' ' .. whole(head.last)
use_key(head, ARGV[5], numbers)
return { ok = 'added ' .. numbers }
