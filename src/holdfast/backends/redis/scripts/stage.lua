-- Add to what waits beside a session until a load commits it; it is gone by itself if nobody does.
-- KEYS: 1 where. ARGV: 1 RPUSH or HSET, 2 time to live in ms, 3… what.
redis.call(ARGV[1], KEYS[1], unpack(ARGV, 3))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { 'staged' }
