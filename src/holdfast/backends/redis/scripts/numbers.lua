-- The visible ones of some records. ARGV: their numbers.
local head = read_head()
if head.trouble then
    return head.trouble
end
local found = { 'picked' }
local ends_at = visible_end(head)
for _, number in ipairs(ARGV) do
    local seq = tonumber(number)
    if seq > head.floor and seq <= ends_at then
        found[#found + 1] = number
        found[#found + 1] = redis.call('LINDEX', KEYS[2], whole(seq - head.floor - 1))
    end
end
return found
