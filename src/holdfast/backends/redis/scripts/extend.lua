-- Add entries and move the index of a log on, if it is where the caller saw it and the log has not
-- been forgotten or rewritten since. ARGV: 1 model, 2 after, 3 upto, 4 floor, 5 from scratch, 6 how many the
-- client compares, 7… entries. With one more than that, the engine compares them, if it can.
local head = read_head()
if head.trouble then
    return head.trouble
end
local position, entries, near, words = index_keys()
local floor = tonumber(ARGV[4])
if visible_end(head) < tonumber(ARGV[3]) or floor > head.floor or floor < head.floor - trimmed(head) then
    return { 'position', '', '0', '0' }
end
if ARGV[5] == '1' then
    redis.call('UNLINK', index_keys())
end
local at = index_at()
if (tonumber(at[2]) or 0) ~= tonumber(ARGV[2]) or (at[1] or ARGV[1]) ~= ARGV[1] then
    return { 'position', at[1] or '', at[2] or '0', at[3] or '0' }
end

-- Not what was cut off since it was read.
for place = #ARGV, 7, -1 do
    if struct.unpack('<I', ARGV[place]) <= head.floor then
        table.remove(ARGV, place)
    end
end

-- Not what was erased since it was read; only memories can be.
if string.sub(KEYS[1], -14) == ':memories:head' then
    for place = #ARGV, 7, -1 do
        local seq = struct.unpack('<I', ARGV[place])
        if redis.call('LINDEX', KEYS[2], whole(seq - head.floor - 1)) == ERASED_RECORD then
            table.remove(ARGV, place)
        end
    end
end

-- An entry: number (4 bytes), length of the vector (2), count of words (4), vector, words of 12.
local function vector_of(entry)
    local _, size = struct.unpack('<IH', entry)
    return string.sub(entry, 11, 10 + size)
end

-- The engine compares all of them, so the graph that it would find its way by is made small.
local function add_near(call, entry)
    local seq = struct.unpack('<I', entry)
    return call('VADD', near, 'FP32', floats(vector_of(entry)), whole(seq), 'Q8', 'EF', '1', 'M', '4')
end

local function add_words(entry)
    local members = {}
    for place = 11 + #vector_of(entry), #entry, 12 do
        members[#members + 1] = '0'
        members[#members + 1] = string.sub(entry, place, place + 7) .. string.sub(entry, 1, 4)
            .. string.sub(entry, place + 8, place + 11)
    end
    for from = 1, #members, CHUNK do
        redis.call('ZADD', words, unpack(members, from, math.min(from + CHUNK - 1, #members)))
    end
end

local function add(entry)
    add_near(redis.call, entry)
    add_words(entry)
end

-- Let the engine compare from now on what the client has compared; false if it cannot. An engine
-- without vector sets does not know the command, or does not let us use it.
local function hand_over()
    local kept = redis.call('LRANGE', entries, 0, -1)
    local first = kept[1] or ARGV[7]
    if #vector_of(first) > DIMENSION_MAX or add_near(redis.pcall, first) ~= 1 then
        return false
    end
    for _, entry in ipairs(kept) do
        add(entry)
    end
    redis.call('UNLINK', entries)
    return true
end

local by_engine, held, more = at[4] == 'engine', redis.call('LLEN', entries), #ARGV - 6
if not by_engine and held <= tonumber(ARGV[6]) and held + more > tonumber(ARGV[6]) then
    by_engine = hand_over()
end
if by_engine then
    for place = 7, #ARGV do
        add(ARGV[place])
    end
    redis.call('HSET', position, 'by', 'engine', 'count', redis.call('VCARD', near))
else
    for from = 7, #ARGV, CHUNK do
        redis.call('RPUSH', entries, unpack(ARGV, from, math.min(from + CHUNK - 1, #ARGV)))
    end
    redis.call('HSET', position, 'count', redis.call('LLEN', entries))
end
redis.call('HSET', position, 'model', ARGV[1], 'upto', ARGV[3], 'floor', whole(head.floor))
release_log(head)
return { 'position', ARGV[1], ARGV[3], ARGV[4] }
