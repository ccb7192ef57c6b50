-- What every script begins with. KEYS: 1 head, 2 log, 3 used keys; further ones as each script says.
-- The head outlives the log: it holds the last number, the floor and the state for as long as tombstones
-- are kept, so that numbers do not restart and nothing that was forgotten or has expired comes back.
-- Decisions come first: Redis does not roll a script back.

if not redis.REDIS_VERSION_NUM then -- before 7.0 a script may be replicated by its text: TIME forbids it
    redis.replicate_commands()
end

-- Where all sessions are on one node, the last key says what the keys of this one's tombstone begin
-- with, if that bears a digest in the place of the name (holdfast.tombstones).
local HIDDEN = string.match(KEYS[#KEYS], '^(.*:)tombstone$')
if HIDDEN then
    table.remove(KEYS)
end

local LAYOUT = '1'
local CHUNK = 1000 -- Lua cannot unpack many more arguments at once

-- The index of this log; in its slot, since the braces of its name are the same.
local function index_keys()
    local stem = string.sub(KEYS[1], 1, -5)
    -- `followed` holds the position of the index; the name is that of stored data.
    return stem .. 'followed', stem .. 'entries', stem .. 'near', stem .. 'words'
end

-- A key of the index. It is not declared: while a slot moves, no session could be reached of which a
-- declared key is on neither node. One that is not on this node then cannot even be asked for;
-- what is derived may be left out, whatever else is wrong may not.
local function beside(verb, key, ...)
    local reply = redis.pcall(verb, key, ...)
    if type(reply) == 'table' and reply.err and not string.find(reply.err, 'non local key', 1, true) then
        error(reply.err)
    end
end

-- Model, upto, floor, who compares and how many entries; nothing if some of those are gone.
local function index_at()
    local position, entries, near = index_keys()
    local at = redis.call('HMGET', position, 'model', 'upto', 'floor', 'by', 'count')
    local held = at[5]
    if at[4] == 'engine' then
        held = redis.pcall('VCARD', near)
    elseif held then
        held = redis.call('LLEN', entries)
    end
    return held == (at[5] and tonumber(at[5])) and at or {}
end

local function whole(number)
    return string.format('%.0f', number)
end

-- The engine's clock in ms. Only sessions with a time to live need it.
local function clock()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- When it is written to, and up to which number: a client of an earlier release moves only that on.
local function written_at(head)
    return whole(clock()) .. ':' .. whole(head.last)
end

local STATES = { live = true, expired = true, forgotten = true }

local function is_whole(number, most)
    return number and number >= 0 and number <= most and number == math.floor(number)
end

-- Whether a head is one that was written: from another, an append would go on at any number, or drop
-- what is there. What was damaged is made such that it can be forgotten, and nothing else.
local function check(head, kept)
    local is_sound = STATES[head.state] and is_whole(head.last, NUMBER_MAX) and is_whole(head.floor, head.last)
        and is_whole(head.bytes, 2 ^ 53) and (not kept[5] or is_whole(head.ttl, TTL_MS_MAX))
        and (not kept[6] or is_whole(head.exp, EXPIRES_MS_MAX))
    if not is_sound then
        head.trouble = { 'damaged' }
        head.last = is_whole(head.last, NUMBER_MAX) and head.last or NUMBER_MAX
        head.floor, head.bytes, head.ttl, head.exp = head.last, 0, nil, nil
    end
    return is_sound
end

-- Head and used keys of the tombstone that bears a digest.
local function hidden_keys()
    local stem = HIDDEN .. string.match(KEYS[1], '}:(.*)head$')
    return stem .. 'head', stem .. 'keys'
end

local function fields_of(key)
    return redis.call('HMGET', key, 'v', 'last', 'floor', 'bytes', 'ttl', 'exp', 'state')
end

-- The session at this instant. Of its numbers, those above the floor are there. Where it has nothing but
-- a tombstone with a digest, KEYS are those of that, and `named` are those that it was asked for by.
local function read_head()
    local kept = fields_of(KEYS[1])
    local there = redis.call('LLEN', KEYS[2])
    local head = { there = there }
    if HIDDEN and not kept[2] then
        local key, used = hidden_keys()
        local found = fields_of(key)
        if found[2] then
            kept, head.named = found, { KEYS[1], KEYS[3] }
            KEYS[1], KEYS[3] = key, used
        end
    end
    head.exists = kept[2] and true or false
    if not head.exists then
        head.last, head.floor, head.bytes, head.state = 0, 0, 0, 'never'
        return head
    end
    if kept[1] ~= LAYOUT then
        head.trouble = { 'newer', kept[1] or '' }
        return head
    end
    head.last, head.floor, head.bytes = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4])
    head.ttl, head.exp = kept[5] and tonumber(kept[5]), kept[6] and tonumber(kept[6])
    head.state, head.was_floor = kept[7], head.floor
    if check(head, kept) and head.state == 'live' then
        -- The log expires by itself as a whole; a clock that was set back brings no part of it back.
        local released = head.exp and there == 0 and head.last > head.floor
        if head.exp and (released or head.exp <= clock()) then
            head.state = 'expired'
        elseif there ~= head.last - head.floor then
            head.trouble = { 'torn', whole(head.last - head.floor), whole(there) }
        end
    end
    return head
end

-- How many messages appends have cut off before the first that is there: those from base + 1 to cut,
-- unless the floor has moved since, by a rewrite, a forget or an expiry.
local function trimmed(head)
    local kept = redis.call('HMGET', KEYS[1], 'base', 'cut')
    if kept[2] and tonumber(kept[2]) == head.floor then
        return head.floor - tonumber(kept[1])
    end
    return 0
end

-- The last visible number, 0 if nothing is.
local function visible_end(head)
    if head.state == 'live' and head.last > head.floor then
        return head.last
    end
    return 0
end

-- Nothing given so far is visible any more. The records go with `drop_log`, or, where others come
-- into their place, when those are there: while a slot moves, no key can be begun on the old node.
local function clear(head)
    if head.exists then
        for _, key in ipairs({ index_keys() }) do
            beside('UNLINK', key)
        end
    end
    head.floor, head.bytes, head.old = head.last, 0, head.there
end

local function drop_log(head)
    if head.there > 0 then
        redis.call('UNLINK', KEYS[2])
    end
end

local function write_head(head)
    local fields = {
        'v', LAYOUT, 'last', whole(head.last), 'floor', whole(head.floor),
        'bytes', whole(head.bytes), 'state', head.state,
    }
    if head.ttl then
        fields[#fields + 1] = 'ttl'
        fields[#fields + 1] = whole(head.ttl)
    end
    if head.exp then
        fields[#fields + 1] = 'exp'
        fields[#fields + 1] = whole(head.exp)
    end
    redis.call('HSET', KEYS[1], unpack(fields))
    if not head.ttl then
        redis.call('HDEL', KEYS[1], 'ttl')
    end
    if not head.exp then
        redis.call('HDEL', KEYS[1], 'exp')
    end
end

-- The room of the log is freed by the engine itself, not before the session has expired.
local function release_log(head)
    for _, key in ipairs({ KEYS[2], index_keys() }) do
        if head.exp then
            beside('PEXPIREAT', key, whole(head.exp))
        else
            beside('PERSIST', key)
        end
    end
end

-- Head and used keys of a session that is gone, or will be, stay so many ms after it; otherwise for ever.
local function bound(head, kept)
    local at = head.state ~= 'live' and clock() or head.exp
    local function one(key)
        if kept > 0 and at then
            beside('PEXPIREAT', key, whole(at + kept))
        else
            beside('PERSIST', key)
        end
    end
    one(KEYS[1])
    one(string.sub(KEYS[1], 1, -5) .. 'keys')
end

-- A write that changes nothing, so that waiting for the disk waits for the first try as well.
local function touch(head)
    redis.call('HSET', KEYS[1], 'last', whole(head.last))
end
