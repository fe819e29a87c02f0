-- Many acquires, renewals, releases and withdrawals in one step; one too.
-- ARGV after the head, four for each lock key: kind, id, milliseconds, rest.
-- A reply is a token or 1 when it was done, else an array that starts with
-- one of the codes of state.lua.
local minted = false

-- wait_for_turn makes sure that nobody else's turn is passed over, and returns
-- the refusal if it would be.
local function wait_for_turn(key, owner)
  local q = queue_keys(key)
  local head = call('ZRANGE', q, 0, 0)[1]
  if not head or head == owner or call('EXISTS', key) == 1 then return nil end
  local first, ends = next_turn(key, owner)
  if not first or first == owner then return nil end
  return {TURN, math.ceil((ends - now) / 1000)}
end

-- id is the owner, rest the length of the label, the label and the value.
local function acquire(key, owner, ttl_ms, rest)
  if not now then read_state() end
  if is_barred(owner) then return {WITHDRAWN} end
  local refusal = queued > now and wait_for_turn(key, owner)
  if refusal then return refusal end
  local token = next_token()
  if call('SET', key, value_of(owner, token, rest), 'NX', 'PX', ttl_ms) then
    last, minted = token, true
    if queued > now then leave(key, owner) end
    if observed > now then changed(key) end
    return token
  end
  local by, ms = holder(key)
  local waits = queued > now and stay(key, owner)
  return {HELD, by, ms, waits and 1 or 0}
end

-- id is "owner token " and rest its last index, here and in release.
local function renew(key, id, ttl_ms, rest)
  if not held_by(key, id, rest) then return not_held(key) end
  return call('PEXPIRE', key, ttl_ms)
end

local function release(key, id, keep_ms, rest)
  if not held_by(key, id, rest) then return not_held(key) end
  if keep_ms == '0' then
    call('DEL', key)
    freed(key)
    return 1
  end
  keep_ms = tonumber(keep_ms)
  if call('PTTL', key) > keep_ms then
    call('PEXPIRE', key, keep_ms)
    if not now then read_state() end
    if queued > now then hint(key) end
  end
  return 1
end

-- withdraw bars owner first: its acquire may still be on the way. id is the
-- owner.
local function withdraw(key, owner, bar_ms)
  if not now then read_state() end
  bar_ms = tonumber(bar_ms)
  local ends = now + bar_ms * 1000
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
    next_turn(key)
  end
  return 1
end

local operations = {a = acquire, d = release, r = renew, w = withdraw}
local replies, arg = {}, 3
for n = 3, #KEYS do
  replies[n - 2] = operations[ARGV[arg]](KEYS[n], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3])
  arg = arg + 4
end
if minted then call('HSET', control, 'token', last) end
return replies
