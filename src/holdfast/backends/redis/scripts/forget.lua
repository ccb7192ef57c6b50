-- Erase all records; the head stays as the tombstone, the keys stay used. KEYS: 4 to 6 and 7 to 9
-- are the logs beside the session, which go in the same step.
local heads = {}
for lane = 0, 2 do
    for at = 1, 3 do
        KEYS[at] = KEYS[3 * lane + at]
    end
    heads[lane] = read_head()
    if heads[lane].trouble and heads[lane].trouble[1] == 'newer' then
        return heads[lane].trouble
    end
    heads[lane].keys = { KEYS[1], KEYS[2], KEYS[3] }
end
local known, counts, bytes = false, {}, 0
for lane = 0, 2 do
    local head = heads[lane]
    KEYS[1], KEYS[2], KEYS[3] = unpack(head.keys)
    counts[lane] = 0
    if head.exists then
        known = true
        if visible_end(head) > 0 then
            counts[lane], bytes = head.there, bytes + head.bytes
        end
        clear(head)
        drop_log(head)
        head.state, head.ttl, head.exp = 'forgotten', nil, nil
        write_head(head)
    end
end
if not known then
    return { 'never' }
end
return { 'erased', whole(counts[0]), whole(bytes), whole(counts[1] + counts[2]) }
