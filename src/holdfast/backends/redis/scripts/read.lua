-- Visible records with after < number < before. ARGV: 1 limit, 2 before, 3 after; each may be ''.
-- The newest so many, or with `after` the oldest so many.
local head = read_head()
if head.trouble then
    return head.trouble
end
local ends_at = visible_end(head)
if ends_at == 0 then
    return { 'page', head.state, '0', '0', {}, '0', '0' }
end
local cut_off = whole(trimmed(head))
local low = math.max(tonumber(ARGV[3]) or 0, head.floor)
local high = math.min(tonumber(ARGV[2]) or ends_at + 1, ends_at + 1)
local first, count = low + 1, high - low - 1
local limit = tonumber(ARGV[1])
if limit and limit < count then
    if ARGV[3] == '' then
        first = high - limit
    end
    count = limit
end
if count <= 0 then
    return { 'page', head.state, whole(ends_at), '0', {}, whole(head.floor), cut_off }
end
local from = first - head.floor - 1
local records = redis.call('LRANGE', KEYS[2], whole(from), whole(from + count - 1))
return { 'page', head.state, whole(ends_at), whole(first), records, whole(head.floor), cut_off }
