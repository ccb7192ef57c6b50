-- Cut off what an append is not to keep, and what the index has of it. See add.lua for the arguments.

-- The index without numbers up to the floor. Where a key of it is on another node, it is left as it is,
-- and is rebuilt: its floor is another one then.
local function cut_index(floor, upto)
    local position, entries, near, words = index_keys()
    local at = redis.pcall('HMGET', position, 'model', 'by')
    if at.err or not at[1] then
        return
    end
    local function number(packed, from)
        return (struct.unpack('<I', string.sub(packed, from, from + 3)))
    end
    local count
    if at[2] == 'engine' then
        local cursor, gone, held = '0', {}, redis.pcall('VCARD', near)
        if type(held) == 'table' then
            return
        end
        repeat
            local page = redis.pcall('ZSCAN', words, cursor, 'COUNT', CHUNK)
            if page.err then
                return
            end
            cursor = page[1]
            for place = 1, #page[2], 2 do -- a word (8 bytes), a number, a weight
                if number(page[2][place], 9) <= upto then
                    gone[#gone + 1] = page[2][place]
                end
            end
        until cursor == '0'
        for _, member in ipairs(gone) do
            redis.call('ZREM', words, member)
        end
        for seq = floor + 1, upto do
            redis.call('VREM', near, whole(seq))
        end
        count = redis.call('VCARD', near)
    else
        local first = redis.pcall('LINDEX', entries, 0)
        if type(first) == 'table' then
            return
        end
        while first and number(first, 1) <= upto do
            redis.call('LPOP', entries)
            first = redis.call('LINDEX', entries, 0)
        end
        count = redis.call('LLEN', entries)
    end
    redis.call('HSET', position, 'floor', whole(upto), 'count', count)
end

local function keep(head, first)
    local upto = tonumber(ARGV[6])
    if upto > head.floor and upto < head.last then
        local base, count = head.floor - trimmed(head), upto - head.floor
        for from = 0, count - 1, CHUNK do
            local till = math.min(from + CHUNK, count) - 1
            for _, record in ipairs(redis.call('LRANGE', KEYS[2], whole(from), whole(till))) do
                head.bytes = head.bytes - #record
            end
        end
        redis.call('LTRIM', KEYS[2], whole(count), '-1')
        redis.call('HSET', KEYS[1], 'floor', whole(upto), 'bytes', whole(head.bytes),
            'base', whole(base), 'cut', whole(upto))
        cut_index(head.floor, upto)
        head.floor = upto
    end
    if ARGV[7] ~= '' then -- one more: the present millisecond has begun already
        local marks = redis.call('HGET', KEYS[1], 'marks') or ''
        if '=' .. marks == ARGV[7] then
            marks = ARGV[8]
        end
        local mark = whole(first) .. '-' .. whole(head.last) .. ':' .. whole(clock() + 1)
        redis.call('HSET', KEYS[1], 'marks', marks .. mark .. ' ')
    end
end
