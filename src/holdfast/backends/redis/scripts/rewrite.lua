-- Put records in the place of all that is visible, under new numbers. See add.lua for the arguments.
local head = read_head()
if head.trouble and head.trouble[1] ~= 'torn' then
    return head.trouble
end
local refusal = refuse(head)
if refusal then
    return refusal
end
clear(head)
local first = add(head)
return { ok = 'added ' .. whole(first) .. ' ' .. whole(head.last) }
