-- Erase all records; the head stays as the tombstone, the keys stay used, both for a time. KEYS: 4 to 6 and 7 to 9
-- are the logs beside the session, which go in the same step. ARGV: 1 for how many ms that is, 0 for ever, 2 and 3 the
-- last numbers that the session and its memories must have, or ''. Where given, 4 names, 5 gone, 6 going, 7 the
-- session's name and 8 its digest: then the tombstone bears that, if all sessions are on one node.
local SUBLOGS = { [0] = '', '\255m', '\255s' }
local hide = HIDDEN and ARGV[4]
local TIDY = 8
local heads = {}
for sublog = 0, 2 do
    for at = 1, 3 do
        KEYS[at] = KEYS[3 * sublog + at]
    end
    local stem = string.sub(KEYS[1], 1, -5)
    heads[sublog] = read_head()
    heads[sublog].staged = stem .. 'staged'
    if heads[sublog].trouble and heads[sublog].trouble[1] == 'newer' then
        return heads[sublog].trouble
    end
    heads[sublog].keys = { KEYS[1], KEYS[2], KEYS[3] }
end
for sublog = 0, 1 do
    if ARGV[sublog + 2] ~= '' and heads[sublog].last ~= tonumber(ARGV[sublog + 2]) then
        return { 'written' }
    end
end
if hide then -- fails here, not half way, if another program has one of those keys
    redis.call('ZCARD', ARGV[4])
    redis.call('ZCARD', ARGV[5])
    redis.call('HLEN', ARGV[6])
end

-- Move a tombstone to its digest, and take in one that a load left there.
local function hide_name(head)
    local key, used = hidden_keys()
    local other = tonumber(redis.call('HGET', key, 'last') or 0)
    if other > head.last then
        head.last, head.floor = other, other
        write_head(head)
    end
    local pairs_there = redis.call('HGETALL', used)
    for at = 1, #pairs_there, 2 do
        redis.call('HSET', KEYS[3], pairs_there[at], pairs_there[at + 1])
    end
    redis.call('HDEL', KEYS[1], 'out', 'marks')
    redis.call('RENAME', KEYS[1], key)
    if redis.call('EXISTS', KEYS[3]) == 1 then
        redis.call('RENAME', KEYS[3], used)
    end
    KEYS[1], KEYS[3] = key, used
end

-- Erase what a load that was killed put beside the session; whether there was any. One that is under way begins again.
local function drop_staged(every)
    local found = redis.pcall('SMEMBERS', every)
    if found.err or #found == 0 then
        return false
    end
    redis.pcall('UNLINK', every, unpack(found, 1, math.min(#found, CHUNK)))
    return true
end

local known, counts, bytes = false, {}, 0
for sublog = 0, 2 do
    local head = heads[sublog]
    KEYS[1], KEYS[2], KEYS[3] = unpack(head.keys)
    counts[sublog] = 0
    known = drop_staged(head.staged) or known
    if head.exists then
        known = true
        if visible_end(head) > 0 then
            counts[sublog], bytes = head.there, bytes + head.bytes
        end
        clear(head)
        drop_log(head)
        head.state, head.ttl, head.exp = 'forgotten', nil, nil
        write_head(head)
        if hide then
            if not head.named then
                hide_name(head)
            end
            redis.call('ZADD', ARGV[5], 0, SUBLOGS[sublog] .. ARGV[8])
        end
        bound(head, tonumber(ARGV[1]))
    end
    if hide then -- also where the tombstone is gone, but its name is not
        local name = SUBLOGS[sublog] .. ARGV[7]
        local out = redis.call('ZREM', ARGV[4], name) + redis.call('ZREM', ARGV[5], name)
        known = redis.call('HDEL', ARGV[6], name) + out > 0 or known
    end
end
if hide then
    tidy(ARGV[4], ARGV[5], ARGV[6], TIDY)
end
if not known then
    return { 'never' }
end
return { 'erased', whole(counts[0]), whole(bytes), whole(counts[1] + counts[2]) }
