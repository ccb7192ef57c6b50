-- Begin a session from what was staged beside it, under its old numbers, in one step.
-- ARGV: 1 the session's name, 2 whether the index has it, 3 last, 4 floor, 5 bytes, 6 ttl or '',
-- 7 expiry or '', 8 state, 9 how many keys, 10 how many were cut off before, 11 for
-- how many ms used keys and tombstones are kept. KEYS: 4 staged records, 5 staged keys, 6 the index, where it is on this node.

-- Why this is no session, or nil.
local function unfit(head)
    if not (head.floor >= 0 and head.floor <= head.last and head.last <= NUMBER_MAX) then
        return 'a number that no message can have'
    end
    local known = head.state == 'live' or head.state == 'expired' or head.state == 'forgotten'
    if not known or head.state ~= 'live' and head.last > head.floor then
        return head.state .. ' with ' .. whole(head.last - head.floor) .. ' messages'
    end
    local cut_off = tonumber(ARGV[10])
    if cut_off ~= 0 and (cut_off < 0 or cut_off > head.floor or head.last == head.floor) then
        return 'more cut off than there was'
    end
    if head.state == 'forgotten' and (head.ttl or head.exp) then
        return 'forgotten, with a time to live'
    end
    if head.ttl and (head.ttl < 1 or head.ttl > TTL_MS_MAX)
        or head.exp and (head.exp < 0 or head.exp > EXPIRES_MS_MAX) then
        return 'a time to live or an expiry that nobody can give'
    end
    return nil
end

local STAGED = string.sub(KEYS[1], 1, -5) .. 'staged'

local function unstage()
    redis.call('UNLINK', KEYS[4], KEYS[5])
    beside('SREM', STAGED, KEYS[4], KEYS[5])
end

local head = read_head()
if head.exists then
    unstage()
    touch(head)
    return { 'there' }
end
head.last, head.floor, head.bytes = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
head.ttl, head.exp, head.state = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]
local why = unfit(head)
if why then
    unstage()
    return { 'unfit', why }
end
if not KEYS[6] and ARGV[2] ~= '1' then
    return { 'new' }
end
local keys = redis.call('HLEN', KEYS[5])
if redis.call('LLEN', KEYS[4]) ~= head.last - head.floor or keys ~= tonumber(ARGV[9]) then
    return { 'unstaged' } -- the staged records have a time to live: this took longer
end
if KEYS[6] then
    redis.call('ZCARD', KEYS[6]) -- fails here, not half way, if another program has that key
end
if head.state == 'live' and head.exp and head.exp <= clock() then
    head.state, head.floor, head.bytes = 'expired', head.last, 0 -- its records do not come back
    redis.call('UNLINK', KEYS[4])
end
write_head(head)
redis.call('HSET', KEYS[1], 'written', written_at(head))
if ARGV[10] ~= '0' and head.state == 'live' then
    redis.call('HSET', KEYS[1], 'cut', whole(head.floor), 'base', whole(head.floor - tonumber(ARGV[10])))
end
redis.call('UNLINK', KEYS[2], KEYS[3])
if keys > 0 then
    redis.call('RENAME', KEYS[5], KEYS[3])
    redis.call('PERSIST', KEYS[3]) -- it was staged with a time to live
end
if head.last > head.floor then
    redis.call('RENAME', KEYS[4], KEYS[2])
    release_log(head)
end
unstage()
bound(head, tonumber(ARGV[11]))
if KEYS[6] then
    redis.call('ZADD', KEYS[6], 0, ARGV[1])
end
return { 'imported' }
