-- The facts of a session: state, last, count, bytes, time to live, expiry, floor; '' is none.
local head = read_head()
if head.trouble and head.trouble[1] == 'newer' then
    return head.trouble
end
local count, bytes = 0, 0
if head.state == 'live' then
    count, bytes = head.there, head.bytes
end
return {
    'facts', head.state, whole(head.last), whole(count), whole(bytes),
    head.ttl and whole(head.ttl) or '', head.exp and whole(head.exp) or '', whole(head.floor),
}
