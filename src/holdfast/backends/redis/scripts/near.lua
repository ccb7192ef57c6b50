-- Shared by extend and search. The vectors of a small log are in `entries`, for the client to compare.
-- Those of a larger one the engine compares, if it has vector sets: `near` is one of them all, `words`
-- a sorted set in the order of its members, each a word (8 bytes), a number, a weight. That is five
-- times the memory, and thirty times as fast for twenty thousand.

local DIMENSION_MAX = 4000 -- Lua cannot unpack many more

-- A signed byte a dimension as these commands take it. Nothing is lost when the engine makes
-- bytes of it again: the largest of each vector is 127, and that is its scale.
local function floats(vector)
    local numbers = { struct.unpack(string.rep('b', #vector), vector) }
    numbers[#numbers] = nil -- where it ended
    return struct.pack('<' .. string.rep('f', #vector), unpack(numbers))
end
