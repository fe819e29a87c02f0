-- Enters an owner into the queue, or keeps its place alive. ARGV after the
-- head: owner, channel. Replies 1 when the lock is free and it is that owner's
-- turn, 0 when it has to wait.
local key, owner, channel = KEYS[1], ARGV[5], ARGV[6]
local denied = read_state()
if denied then return denied end
if is_barred(owner) then return {WITHDRAWN} end
local q, w = queue_keys(key)
call('HSET', w, owner, format('%.0f %s', now + ALIVE_US, channel))
keep_queue(q, w)
if not call('ZSCORE', q, owner) then
  local tail = call('ZRANGE', q, -1, -1, 'WITHSCORES')
  call('ZADD', q, tonumber(tail[2] or 0) + 1, owner)
  call('PEXPIRE', q, KEY_MS)
end
if call('EXISTS', key) == 1 then
  if get_turn(w) == owner then call('HDEL', w, '!turn') end
  return 0
end
if next_turn(key, owner) == owner then return 1 end
return 0
