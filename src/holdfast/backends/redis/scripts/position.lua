-- Where the index of a log is.
local head = read_head()
if head.trouble then
    return head.trouble
end
local at = index_at()
if visible_end(head) == 0 or not at[1] or tonumber(at[3]) ~= head.floor then
    return { 'position', '', '0', '0' }
end
return { 'position', at[1], at[2], at[3] }
