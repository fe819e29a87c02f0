-- Uses every command that the scripts use, on every kind of key and channel,
-- and changes nothing. KEYS has a key that no lock has. ARGV after the head:
-- channel. SET comes first, because a server at maxmemory lets a script go on
-- that has written something.
local key, channel = KEYS[1], ARGV[5]
call('SET', key, '', 'XX', 'PX', 1)
for _, read in ipairs({'GET', 'PTTL', 'TYPE', 'DEL'}) do call(read, key) end
call('GETRANGE', key, 0, 0)
call('PEXPIRE', key, 1)
call('TIME')
call('MGET', control, side .. 'l:{' .. key .. '}')
call('SETRANGE', control, 0, '')
call('EXISTS', key)
call('ZADD', tombstones, 'XX', 1, channel)
call('ZSCORE', tombstones, channel)
call('ZREMRANGEBYSCORE', tombstones, '-inf', 0)
call('PUBLISH', side .. 'i:' .. channel, '')
call('PUBLISH', side .. 'o:' .. key, '')
return 1
