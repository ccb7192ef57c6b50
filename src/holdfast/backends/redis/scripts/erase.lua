-- Erase one record where it stands: the numbers of the others stay. ARGV: 1 its number.
local head = read_head()
if head.trouble then
    return head.trouble
end
if not head.exists then
    return { 'never' }
end
local seq = tonumber(ARGV[1])
local nothing = { 'erased', '0', '0', '0' }
if seq <= head.floor or seq > visible_end(head) then
    return nothing
end
local place = whole(seq - head.floor - 1)
local record = redis.call('LINDEX', KEYS[2], place)
if record == ERASED_RECORD then
    touch(head)
    return nothing
end

-- The index first. Where that breaks off, the log is as it was, and an index without as many entries
-- as it counts is rebuilt.
local followed, entries, near, words = index_keys()
local by = redis.pcall('HGET', followed, 'by')
if type(by) == 'table' then -- it is on another node, since the slot moves
    return redis.error_reply('TRYAGAIN ' .. by.err)
end
if by == 'engine' then
    redis.call('VREM', near, whole(seq))
    local number, cursor, found = struct.pack('<I', seq), '0', {}
    repeat
        local page = redis.call('ZSCAN', words, cursor, 'COUNT', CHUNK)
        cursor = page[1]
        for at = 1, #page[2], 2 do -- a word (8 bytes), a number, a weight
            if string.sub(page[2][at], 9, 12) == number then
                found[#found + 1] = page[2][at]
            end
        end
    until cursor == '0'
    for _, member in ipairs(found) do
        redis.call('ZREM', words, member)
    end
    redis.call('HSET', followed, 'count', redis.call('VCARD', near))
else
    for _, entry in ipairs(redis.call('LRANGE', entries, 0, -1)) do
        if struct.unpack('<I', entry) == seq then
            redis.call('LREM', entries, 1, entry)
            redis.call('HSET', followed, 'count', redis.call('LLEN', entries))
        end
    end
end
redis.call('LSET', KEYS[2], place, ERASED_RECORD)
head.bytes = head.bytes + #ERASED_RECORD - #record
redis.call('HSET', KEYS[1], 'bytes', whole(head.bytes))
return { 'erased', '0', whole(#record), '1' }
