-- Erase all records; the head stays as the tombstone, the keys stay used. KEYS: 4 to 6 and 7 to 9
-- are the logs beside the session, which go in the same step. ARGV, where given: the last numbers that the
-- session and its memories must have.
local heads = {}
for sublog = 0, 2 do
    for at = 1, 3 do
        KEYS[at] = KEYS[3 * sublog + at]
    end
    heads[sublog] = read_head()
    if heads[sublog].trouble and heads[sublog].trouble[1] == 'newer' then
        return heads[sublog].trouble
    end
    heads[sublog].keys = { KEYS[1], KEYS[2], KEYS[3] }
end
for sublog = 0, #ARGV - 1 do
    if heads[sublog].last ~= tonumber(ARGV[sublog + 1]) then
        return { 'written' }
    end
end
local known, counts, bytes = false, {}, 0
for sublog = 0, 2 do
    local head = heads[sublog]
    KEYS[1], KEYS[2], KEYS[3] = unpack(head.keys)
    counts[sublog] = 0
    if head.exists then
        known = true
        if visible_end(head) > 0 then
            counts[sublog], bytes = head.there, bytes + head.bytes
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
