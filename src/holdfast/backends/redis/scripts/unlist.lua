-- Note that the name of a session that is not alive may be taken out of the index from now on:
-- a write that revives it has to write it there first, and says so with this ticket.
-- ARGV: 1 the ticket, 2 for how many ms a tombstone is kept. What has expired is marked, so that no clock can bring it back unlisted.
local head = read_head()
if head.trouble or not head.exists or head.state == 'live' then
    return { 'kept' }
end
if head.state == 'expired' then
    clear(head)
    drop_log(head)
    write_head(head)
end
redis.call('HSET', KEYS[1], 'out', ARGV[1])
if redis.call('PTTL', KEYS[1]) < 0 then -- it expired unseen
    bound(head, tonumber(ARGV[2]))
end
return { 'out' }
