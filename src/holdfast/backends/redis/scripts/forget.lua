-- Erase all records; the head stays as the tombstone, the keys stay used.
local head = read_head()
if head.trouble and head.trouble[1] == 'newer' then
    return head.trouble
end
if not head.exists then
    return { 'never' }
end
local count, bytes = 0, 0
if visible_end(head) > 0 then
    count, bytes = head.there, head.bytes
end
clear(head)
head.state, head.ttl, head.exp = 'forgotten', nil, nil
write_head(head)
return { 'erased', whole(count), whole(bytes) }
