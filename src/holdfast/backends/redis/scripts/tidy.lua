-- Let names go of which not even a tombstone is left: of a few in each set, any few. Nobody has to list them all: where
-- more are looked at than come in, no more than a fraction is of no use. Not in a cluster, where heads are elsewhere.

local NAMED_BESIDE = { ['\255m'] = 'memories:', ['\255s'] = 'summaries:' }

-- The head of a session, by its name; see keys.py.
local function head_key(names, name)
    local word = NAMED_BESIDE[string.sub(name, 1, 2)]
    local quoted = string.gsub(word and string.sub(name, 3) or name, '[^A-Za-z0-9_~-]', function(byte)
        return string.format('%%%02X', string.byte(byte))
    end)
    return string.match(names, '^(.*)}:names$') .. '.' .. quoted .. '}:' .. (word or '') .. 'head'
end

local function tidy(names, gone, going, count)
    local function drop(found, verb, key)
        for _, name in ipairs(found) do
            if redis.call('EXISTS', head_key(names, name)) == 0 then
                redis.call(verb, key, name)
            end
        end
    end
    drop(redis.call('ZRANDMEMBER', names, count), 'ZREM', names)
    drop(redis.call('ZRANDMEMBER', gone, count), 'ZREM', gone)
    drop(redis.call('HRANDFIELD', going, count), 'HDEL', going)
end
