-- The state of a session, for a listing: from its head alone, which every session has, so that it
-- can be asked for while its slot moves. `doubt`: the log seems to have expired before its time.
local kept = redis.call('HMGET', KEYS[1], 'v', 'last', 'floor', 'exp', 'state')
if not kept[2] then
    return { 'never' }
end
if kept[1] ~= LAYOUT then
    return { 'newer', kept[1] or '' }
end
local last, floor, exp = tonumber(kept[2]), tonumber(kept[3]), tonumber(kept[4] or 0)
if not (STATES[kept[5]] and is_whole(last, NUMBER_MAX) and is_whole(floor, last) and is_whole(exp, EXPIRES_MS_MAX)) then
    return { 'damaged' }
end
if kept[5] == 'live' and kept[4] then
    if exp <= clock() then
        return { 'expired' }
    end
    local there = redis.pcall('EXISTS', string.sub(KEYS[1], 1, -5) .. 'log')
    if there == 0 and last > floor then
        return { 'doubt' }
    end
end
return { kept[5] }
