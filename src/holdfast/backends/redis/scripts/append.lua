-- Add records to the end, unless the key was used before. See add.lua for the arguments.
local head = read_head()
if head.trouble then
    return head.trouble
end
if ARGV[5] ~= '' then
    local used = redis.call('HGET', KEYS[3], ARGV[5])
    if used and head.exists then
        return repeated(head, used)
    end
end
local refusal = refuse(head)
if refusal then
    return refusal
end
if head.state ~= 'live' then
    clear(head)
end
local first = add(head)
keep(head, first)
local numbers = whole(first) .. ' ' .. whole(head.last)
if ARGV[5] ~= '' then
    use_key(head, ARGV[5], numbers)
end
return { ok = 'added ' .. numbers }
