-- A whole session at one instant: its facts, its records, its used keys.
local head = read_head()
if head.trouble then
    return head.trouble
end
local count, bytes, cut_off, records = 0, 0, 0, {}
if head.state == 'live' then
    count, bytes, cut_off = head.there, head.bytes, trimmed(head)
    records = redis.call('LRANGE', KEYS[2], 0, -1)
end
local facts = {
    'facts', head.state, whole(head.last), whole(count), whole(bytes),
    head.ttl and whole(head.ttl) or '', head.exp and whole(head.exp) or '', whole(head.floor),
    whole(cut_off),
}
return { 'copy', facts, records, redis.call('HGETALL', KEYS[3]) }
