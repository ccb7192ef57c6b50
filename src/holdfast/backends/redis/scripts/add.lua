-- Shared by append and rewrite. ARGV: 1 the session's name, 2 the ticket with which its name was
-- written to the index ('1' for a new session's, '0' for not at all), 3 expect or '',
-- 4 time to live in ms (-1 the session's own, 0 none), 5 key or '', 6 the number up to which to cut off, 0 for
-- none, 7 the marks that were seen, after an =, or '', 8 those to come into their place, 9 for how many ms used
-- keys and tombstones are kept, 0 for ever, 10… records.
-- KEYS: 4 the index of names, where it is on this node.

local FIRST = 10
local KEPT = tonumber(ARGV[9])
local OLD_KEYS = 8

-- Note that a key was used, and look at a few others: those of messages that are gone may be too old. With
-- a few for each that is added no more than a fraction of those that are kept are older than they need be.
local function use_key(head, key, numbers)
    local now = clock()
    redis.call('HSET', KEYS[3], key, numbers .. ' ' .. whole(now))
    if KEPT > 0 and head.floor > 0 then
        local some = redis.call('HRANDFIELD', KEYS[3], OLD_KEYS, 'WITHVALUES')
        for at = 1, #some, 2 do
            local upto, used = string.match(some[at + 1], '^(%d+ %d+) ?(%d*)$')
            if upto and tonumber(string.match(upto, '%d+$')) <= head.floor then
                if used == '' then -- of an earlier release, or of a load
                    redis.call('HSET', KEYS[3], some[at], upto .. ' ' .. whole(now))
                elseif tonumber(used) <= now - KEPT then
                    redis.call('HDEL', KEYS[3], some[at])
                end
            end
        end
    end
    bound(head, KEPT)
end

-- The numbers that were written with a key, of which the time is nobody's matter.
local function repeated(head, used)
    touch(head)
    return { ok = 'repeated ' .. (string.match(used, '^%d+ %d+') or used) } -- a line: the cheapest reply to read
end

-- Why the write must not be made, or nil.
local function refuse(head)
    local ends_at = visible_end(head)
    if ARGV[3] ~= '' and tonumber(ARGV[3]) ~= ends_at then
        return { 'conflict', whole(ends_at) }
    end
    if head.last + #ARGV - FIRST + 1 > NUMBER_MAX then
        return { 'full', whole(head.last) }
    end
    if not head.exists and not KEYS[4] and ARGV[2] ~= '1' then
        return { 'new' } -- a name goes into the index first: no session is ever missing from it
    end
    if (head.named or not head.exists) and KEYS[4] then
        redis.call('ZCARD', KEYS[4]) -- fails here, not half way, if another program has that key
    end
    if head.exists and head.state ~= 'live' then
        head.out = redis.call('HGET', KEYS[1], 'out')
        if head.out and head.out ~= ARGV[2] then
            return { 'new', head.out } -- see unlist.lua
        end
    end
    return nil
end

local function set_ttl(head)
    local asked = tonumber(ARGV[4])
    if asked == 0 then
        head.ttl = nil
    elseif asked > 0 then
        head.ttl = asked
    end
    -- One more, because the present millisecond has begun already: never before its time.
    head.exp = head.ttl and clock() + head.ttl + 1 or nil
end

-- Summaries expire with their session, unless they have expired or are gone already. They are in
-- its slot. Not declared, and a failure is no matter: while a slot moves, a key that is not there
-- cannot even be asked for, and a summary that expires too early is made again. Their log first:
-- where a clock was set back, it may be gone before the time that its head says.
local function move_expiry(head)
    local beside = string.sub(KEYS[1], 1, -5) .. 'summaries:'
    local kept = redis.pcall('HMGET', beside .. 'head', 'state', 'exp')
    if kept.err or kept[1] ~= 'live' or kept[2] and tonumber(kept[2]) <= clock() then
        return
    end
    for _, key in ipairs({ 'head', 'keys' }) do
        if head.exp and KEPT > 0 then
            redis.pcall('PEXPIREAT', beside .. key, whole(head.exp + KEPT))
        else
            redis.pcall('PERSIST', beside .. key)
        end
    end
    if not head.exp then
        if redis.pcall('PERSIST', beside .. 'log') == 1 then
            redis.pcall('HDEL', beside .. 'head', 'ttl', 'exp')
        end
    elseif redis.pcall('PEXPIREAT', beside .. 'log', whole(head.exp)) == 1 then
        redis.pcall('HSET', beside .. 'head', 'ttl', whole(head.ttl), 'exp', whole(head.exp))
    end
end

-- A session that begins again bears its name again.
local function show_name(head)
    local digest = string.match(HIDDEN, '%%FFd(%x+)}:$')
    local sublog = string.byte(ARGV[1]) == 255 and string.sub(ARGV[1], 1, 2) or ''
    local key, used = unpack(head.named)
    redis.call('RENAME', KEYS[1], key)
    if redis.call('EXISTS', KEYS[3]) == 1 then
        redis.call('RENAME', KEYS[3], used)
    end
    KEYS[1], KEYS[3] = key, used
    local gone = string.sub(KEYS[4], 1, -6) .. 'gone'
    redis.call('ZREM', KEYS[4], sublog .. '\255d' .. digest)
    redis.call('ZREM', gone, sublog .. '\255d' .. digest)
    redis.call('ZADD', KEYS[4], 0, ARGV[1])
end

-- Number and add the records; returns the first number.
local function add(head)
    if head.named then
        show_name(head)
    end
    local first, had_exp = head.last + 1, head.exp
    for from = FIRST, #ARGV, CHUNK do
        redis.call('RPUSH', KEYS[2], unpack(ARGV, from, math.min(from + CHUNK - 1, #ARGV)))
    end
    if head.old and head.old > 0 then
        redis.call('LTRIM', KEYS[2], head.old, -1)
    end
    for at = FIRST, #ARGV do
        head.bytes = head.bytes + #ARGV[at]
    end
    head.last = head.last + #ARGV - FIRST + 1
    set_ttl(head)
    if head.state == 'live' and head.floor == head.was_floor and not had_exp and not head.exp then
        redis.call('HSET', KEYS[1], 'last', whole(head.last), 'bytes', whole(head.bytes),
            'written', written_at(head))
        return first
    end
    if head.state == 'live' and head.exp ~= had_exp then
        move_expiry(head)
    end
    head.state = 'live'
    write_head(head)
    redis.call('HSET', KEYS[1], 'written', written_at(head))
    release_log(head)
    bound(head, KEPT)
    if head.out then
        redis.call('HDEL', KEYS[1], 'out')
    end
    if not head.exists and KEYS[4] then
        redis.call('ZADD', KEYS[4], 0, ARGV[1])
    end
    return first
end
