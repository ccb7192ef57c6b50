-- The facts of a session: state, last, count, bytes, time to live, expiry, floor, how many were cut off;
-- '' is none. With an argument also the time, the marks (commands.Keep), and when it was written.
local head = read_head()
if head.trouble and head.trouble[1] ~= 'torn' then
    return head.trouble
end
local count, bytes, cut_off = 0, 0, 0
if head.state == 'live' then
    count, bytes, cut_off = head.there, head.bytes, trimmed(head)
end
local facts = {
    'facts', head.state, whole(head.last), whole(count), whole(bytes),
    head.ttl and whole(head.ttl) or '', head.exp and whole(head.exp) or '', whole(head.floor),
    whole(cut_off),
}
if ARGV[1] then
    facts[#facts + 1] = whole(clock())
    local kept = redis.call('HMGET', KEYS[1], 'marks', 'written')
    facts[#facts + 1] = kept[1] or ''
    local time, last = string.match(kept[2] or '', '^(%d+):(%d+)$')
    facts[#facts + 1] = last == whole(head.last) and time or '0'
end
return facts
