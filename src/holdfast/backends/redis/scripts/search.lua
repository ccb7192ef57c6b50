-- What the index of a log holds near a vector or with some of the words; where the client compares,
-- all that it holds. ARGV: 1 model, 2 vector, 3 limit, 4 how many records words may stand in, 5… words.
local head = read_head()
if head.trouble then
    return head.trouble
end
local position, entries, near, words = index_keys()
local at = redis.call('HMGET', position, 'model', 'floor', 'by', 'count')
if visible_end(head) == 0 or at[1] ~= ARGV[1] or tonumber(at[2]) ~= head.floor then
    return { 'held', {} }
end
if at[3] ~= 'engine' then
    local kept = redis.call('LRANGE', entries, 0, -1)
    return (not at[4] or #kept == tonumber(at[4])) and { 'held', kept } or { 'lost' }
end
local count = redis.pcall('VCARD', near)
if count ~= tonumber(at[4]) then
    return { 'lost' }
end

-- TRUTH: all are compared.
local found = redis.call(
    'VSIM', near, 'FP32', floats(ARGV[2]), 'WITHSCORES', 'COUNT', ARGV[3], 'TRUTH')

-- Where a word stands: how often, and the members themselves.
local function lookup(command, word)
    return redis.call(command, words, '[' .. word, '[' .. word .. string.rep('\255', 9))
end

-- The rarest words until they stand in too many records, at least one.
local often = {}
for place = 5, #ARGV do
    local times = lookup('ZLEXCOUNT', ARGV[place])
    if times > 0 then
        often[#often + 1] = { word = ARGV[place], times = times, place = place }
    end
end
table.sort(often, function(one, other)
    return one.times < other.times or one.times == other.times and one.place < other.place
end)
local scores, ranked, spent = {}, {}, 0
for place, one in ipairs(often) do
    spent = spent + one.times
    if place > 1 and spent > tonumber(ARGV[4]) then
        break
    end
    local rarity = math.log(1 + (count - one.times + 0.5) / (one.times + 0.5))
    for _, member in ipairs(lookup('ZRANGEBYLEX', one.word)) do
        local seq, weight = struct.unpack('<If', member, 9)
        if not scores[seq] then
            ranked[#ranked + 1] = seq
        end
        scores[seq] = (scores[seq] or 0) + weight * rarity
    end
end
table.sort(ranked, function(one, other)
    return scores[one] > scores[other]
end)

local is_near, worded = {}, {}
for place = 1, #found, 2 do
    is_near[found[place]] = true
end
for place = 1, math.min(#ranked, tonumber(ARGV[3])) do
    local seq = whole(ranked[place])
    local vector = is_near[seq] and '' or redis.call('VEMB', near, seq, 'RAW')[2]
    worded[#worded + 1] = { seq, string.format('%.9g', scores[ranked[place]]), vector }
end
return { 'found', found, worded }
