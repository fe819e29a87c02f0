-- Uses every command that the scripts use, on every kind of key and channel,
-- and changes nothing. KEYS has a key that no lock has. ARGV after the head:
-- channel. SET comes first, because a server at maxmemory lets a script go on
-- that has written something.
local key, channel = KEYS[1], ARGV[5]
local q, w = queue_keys(key)
call('SET', key, '', 'XX', 'PX', 1)
for _, read in ipairs({'GET', 'PTTL', 'TYPE', 'DEL'}) do call(read, key) end
call('GETRANGE', key, 0, 0)
call('PEXPIRE', key, 1)
call('TIME')
call('HMGET', control, 'token')
call('HSET', control, 'probe', 1)
call('HDEL', control, 'probe')
call('EXISTS', q)
call('ZADD', q, 'XX', 1, channel)
call('ZRANGE', q, 0, 0)
call('ZCARD', q)
call('ZREM', q, channel)
call('HGET', w, '!turn')
call('ZSCORE', bars, channel)
call('ZREMRANGEBYSCORE', bars, '-inf', 0)
call('PUBLISH', side .. 'i:' .. channel, '')
call('PUBLISH', side .. 'o:' .. key, '')
return 1
