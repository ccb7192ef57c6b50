-- Shared by extend and search. An engine with vector sets compares vectors itself: `near` is one of
-- all vectors, `words` a sorted set in the order of its members, each a word (8 bytes), a number, a
-- weight. Any other engine keeps `entries` for the client to compare.

local DIMENSION_MAX = 4000 -- Lua cannot unpack many more

-- A signed byte a dimension as these commands take it. Nothing is lost when the engine makes
-- bytes of it again: the largest of each vector is 127, and that is its scale.
local function floats(vector)
    local numbers = { struct.unpack(string.rep('b', #vector), vector) }
    numbers[#numbers] = nil -- where it ended
    return struct.pack('<' .. string.rep('f', #vector), unpack(numbers))
end
