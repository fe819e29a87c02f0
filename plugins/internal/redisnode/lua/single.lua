-- One operation, as in batch.lua, on its usual way: the lock is free or ours,
-- and nobody waits or observes. Everything else is left to slow, which is the
-- whole of batch.lua in one function. A script runs from its first line at
-- each call, and this way makes none of its functions: 4 us less.
local call = redis.call
local key, kind, id, ms, rest = KEYS[3], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if kind == 'a' then
  local s = call('HMGET', KEYS[1], 'token', 'barred', 'queued', 'observed')
  local t = call('TIME')
  local now = t[1] * 1000000 + t[2]
  local alone = now > tonumber(s[3] or 0) and now > tonumber(s[4] or 0)
  if alone and (now > tonumber(s[2] or 0) or not call('ZSCORE', KEYS[2], id)) then
    local token = tonumber(s[1] or 0) + 1
    if now > token then token = now end
    local value = id .. string.format(' %.0f ', token) .. rest
    if call('SET', key, value, 'NX', 'PX', ms) then
      call('HSET', KEYS[1], 'token', token)
      return {token}
    end
  end
elseif kind ~= 'w' and redis.pcall('GETRANGE', key, '0', rest) == id then
  if kind == 'r' then
    return {call('PEXPIRE', key, ms)}
  end
  local s = call('HMGET', KEYS[1], 'queued', 'observed')
  local alone = not s[1] and not s[2]
  if not alone then
    local t = call('TIME')
    local now = t[1] * 1000000 + t[2]
    alone = now > tonumber(s[1] or 0) and now > tonumber(s[2] or 0)
  end
  if alone and ms == '0' then
    call('DEL', key)
    return {1}
  end
end
return slow()
