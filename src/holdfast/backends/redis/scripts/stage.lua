-- Add to what waits beside a session until a load commits it; it is gone by itself if nobody does.
-- KEYS: 1 where. ARGV: 1 RPUSH or HSET, 2 time to live in ms, 3 the session's last number, 4… records,
-- or digests of keys, each with the first and the last number of what was written under it.
if ARGV[1] == 'HSET' then
    for at = 4, #ARGV, 2 do
        local first, last = string.match(ARGV[at + 1], '^(%d+) (%d+)$')
        first, last = tonumber(first), tonumber(last)
        if #ARGV[at] ~= 16 or not first or first < 1 or first > last or last > tonumber(ARGV[3]) then
            return { 'unfit', 'a key of other messages than it has' }
        end
    end
end
redis.call(ARGV[1], KEYS[1], unpack(ARGV, 4))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
-- By this set a forget finds it. Not declared, and a failure is no matter: see move_expiry in add.lua.
local every = string.match(KEYS[1], '^(.*staged)%-%a+:%x+$')
redis.pcall('SADD', every, KEYS[1])
redis.pcall('PEXPIRE', every, ARGV[2])
return { 'staged' }
