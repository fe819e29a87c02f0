-- The parts of operate.lua that are not needed as a rule.

-- wait_for_turn makes sure that nobody else's turn is passed over, and returns
-- the refusal if it would be.
local function wait_for_turn(key, owner)
  if call('ZRANGE', (queue_keys(key)), 0, 0)[1] == owner or call('EXISTS', key) == 1 then return nil end
  local first, ends = next_turn(key, owner)
  if first and first ~= owner then return {TURN, math.ceil((ends - now) / 1000)} end
end

-- refuse is the refusal of an acquire that found the lock taken.
local function refuse(key, owner, waiters)
  local by, ms = holder(key)
  local waits = waiters and guarded(stay, key, owner) == true
  return {HELD, by, ms, waits and 1 or 0}
end

-- keep shortens a lease instead of ending it.
local function keep(key, keep_ms)
  if call('PTTL', key) > tonumber(keep_ms) then
    call('PEXPIRE', key, keep_ms)
    if queued > now then guarded(hint, key) end
  end
  return 1
end

-- withdraw bars owner first: its acquire may still be on the way.
--
-- Note: the removal comes before the ZADD because a server at maxmemory lets
-- a script go on that has written something.
local function withdraw(key, owner, bar_ms)
  local ends = now + tonumber(bar_ms) * 1000
  call('ZREMRANGEBYSCORE', bars, '-inf', now)
  call('ZADD', bars, ends, owner)
  call('PEXPIRE', bars, bar_ms)
  if ends > barred then
    barred = ends
    call('HSET', control, 'barred', ends)
  end
  local left = queued > now and leave(key, owner)
  if held_by(key, owner .. ' ', #owner) then
    call('DEL', key)
    freed(key)
  elseif left and call('EXISTS', key) == 0 then
    guarded(next_turn, key)
  end
  return 1
end

-- take_back undoes the grants of this script, whose tokens were not written.
local function take_back(replies, refused)
  for n = 1, #replies do
    if ARGV[4 * n + 1] == 'a' and type(replies[n]) == 'number' then
      call('DEL', KEYS[n])
      replies[n] = refused
    end
  end
end

return {
  guarded = guarded, wait_for_turn = wait_for_turn, refuse = refuse, not_held = not_held, leave = leave,
  next_turn = next_turn, keep = keep, withdraw = withdraw, take_back = take_back,
}
