-- use_all uses every command that the scripts use, on every kind of key and channel, and changes
-- nothing. The key belongs to no lock. SET comes first, because a server at maxmemory accepts all
-- writes of a script that has already written.
local function use_all(key, channel)
  call('SET', key, '', 'XX', 'PX', 1)
  for _, read in ipairs({'GET', 'PTTL', 'TYPE', 'DEL'}) do call(read, key) end
  call('GETRANGE', key, 0, 0)
  call('PEXPIRE', key, 1)
  call('TIME')
  call('MGET', control, side .. 'q:{' .. key .. '}')
  call('SETRANGE', control, 0, '')
  call('EXISTS', key)
  call('ZADD', tombstones, 'XX', 1, channel)
  call('ZSCORE', tombstones, channel)
  call('ZREMRANGEBYSCORE', tombstones, '-inf', 0)
  call('PUBLISH', side .. 'i:' .. channel, '')
  call('PUBLISH', side .. 'o:' .. key, '')
end
