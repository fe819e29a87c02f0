-- One node's answers to a batch of requests, in one step. In KEYS the marker
-- key comes before the lock keys. ARGV after the head: the marker that this
-- node must have ("" to ask for none), three more for quick.lua, then three for
-- each lock key: kind, milliseconds, text.
--
-- Replies {now, admitted, answers}: TIME in microseconds, 1 when the marker is
-- right, and for each request a number when it was done, else an array that
-- starts with a code of state.lua or with QUARANTINED. A node whose marker is
-- wrong has lost data: it gives up what it is told to, and votes for nothing.
local QUARANTINED = 5
-- What a done request replies; FREED has waiters in this node's queue.
local DONE, FREED = 1, 2

read_state()
local admitted = ARGV[3] == '' or call('HGET', KEYS[3], 'marker') == ARGV[3]
local minted = false

-- split reads "owner token rest".
local function split(text)
  local owner, token, from = string.match(text, '^([%w_-]+) (%d+) ()')
  return owner, token, string.sub(text, from)
end

-- raise writes a token of a grant to this node's counter.
local function raise(token)
  token = tonumber(token)
  if token > last then last, minted = token, true end
end

-- holds compares the head of key's value with id.
local function holds(key, id)
  return try('GETRANGE', key, '0', #id - 1) == id
end

-- held tells whether the lease is here. A grant whose token has not been
-- written yet stands here with the token 0.
local function held(key, owner, token)
  return holds(key, owner .. ' ' .. token .. ' ') or token ~= '0' and holds(key, owner .. ' 0 ')
end

-- with_token replaces the token in a lock key's value; the TTL stays.
local function with_token(key, owner, token)
  local _, _, rest = split(call('GET', key))
  call('SET', key, owner .. ' ' .. token .. ' ' .. rest, 'KEEPTTL')
  raise(token)
end

local function done(key)
  if queued > now and call('EXISTS', (queue_keys(key))) == 1 then return FREED end
  return DONE
end

local vote = {}

-- a: acquire. The text is the value, with a guess for the token. It is taken
-- when it is above whatever this node has seen and above its clock, and DONE
-- or FREED replied; else the grant stands without one, and the reply is what
-- the token has to exceed. The owner keeps its place in the queue, because
-- this vote may not be enough.
function vote.a(key, ttl_ms, text)
  local owner, guess, rest = split(text)
  if is_barred(owner) then return {WITHDRAWN} end
  if queued > now then
    local head = call('ZRANGE', (queue_keys(key)), 0, 0)[1]
    if head and head ~= owner and call('EXISTS', key) == 0 then
      local first, ends = next_turn(key, owner)
      if first and first ~= owner then return {TURN, math.ceil((ends - now) / 1000)} end
    end
  end
  local reply
  if guess ~= '0' then
    local floor = math.max(last, now)
    if tonumber(guess) <= floor then
      text, reply = owner .. ' 0 ' .. rest, floor
    end
  end
  if call('SET', key, text, 'NX', 'PX', ttl_ms) then
    if not reply then raise(guess) end
    changed(key)
    return reply or done(key)
  end
  local by, ms = holder(key)
  local waits = queued > now and stay(key, owner)
  return {HELD, by, ms, waits and 1 or 0}
end

-- s: settle. Writes the token of a grant, but only where the grant still is.
function vote.s(key, _, text)
  local owner, token = split(text)
  if not holds(key, owner .. ' ') then return not_held(key) end
  with_token(key, owner, token)
  return DONE
end

-- r: renew.
function vote.r(key, ttl_ms, text)
  if not holds(key, text) then
    local owner, token = split(text)
    if not held(key, owner, token) then return not_held(key) end
    with_token(key, owner, token)
  end
  return call('PEXPIRE', key, ttl_ms)
end

-- h: heal. Puts a lease that a majority has just renewed where it is missing.
-- The text is the value.
function vote.h(key, ttl_ms, text)
  local owner, token = split(text)
  if is_barred(owner) then return {WITHDRAWN} end
  if call('SET', key, text, 'NX', 'PX', ttl_ms) then
    raise(token)
    changed(key)
    return DONE
  end
  local by, ms = holder(key)
  return {HELD, by, ms}
end

-- p: proclaim. After owner and token comes the new value.
function vote.p(key, _, text)
  local owner, token, value = split(text)
  if not held(key, owner, token) then return not_held(key) end
  local old = call('GET', key)
  local length, from = string.match(old, '^%d+ (%d+):()', #owner + 2)
  call('SET', key, string.sub(old, 1, from + length - 1) .. value, 'KEEPTTL')
  changed(key)
  return DONE
end

-- o: hand over. After owner and token comes the whole value of the next grant.
function vote.o(key, ttl_ms, text)
  local owner, token, value = split(text)
  if not held(key, owner, token) then return not_held(key) end
  local next_owner, next_token = split(value)
  if is_barred(next_owner) then return {WITHDRAWN} end
  call('SET', key, value, 'PX', ttl_ms)
  raise(next_token)
  if queued > now then leave(key, next_owner) end
  changed(key)
  return DONE
end

-- i: inspect.
function vote.i(key)
  local value = try('GET', key)
  if type(value) == 'table' then value = holder(key) end
  return {0, value or '', call('PTTL', key), call('ZCARD', (queue_keys(key)))}
end

local give_up = {}

-- d: release. milliseconds is how long the lock must stay taken.
function give_up.d(key, keep_ms, text)
  if not holds(key, text) and not held(key, split(text)) then return not_held(key) end
  keep_ms = tonumber(keep_ms)
  if keep_ms == 0 then
    call('DEL', key)
    changed(key)
    return done(key)
  end
  if call('PTTL', key) > keep_ms then
    call('PEXPIRE', key, keep_ms)
    if queued > now then hint(key) end
  end
  return DONE
end

-- u: undo a grant of an attempt that failed. The text is the owner and a
-- space, here and below. With milliseconds the owner is barred too, because
-- the request may still be on its way.
function give_up.u(key, bar_ms, text)
  bar_ms = tonumber(bar_ms)
  if bar_ms > 0 then
    local ends = now + bar_ms * 1000
    call('ZREMRANGEBYSCORE', bars, '-inf', now)
    call('ZADD', bars, ends, string.sub(text, 1, -2))
    call('PEXPIRE', bars, bar_ms)
    if ends > barred then
      barred = ends
      call('HSET', control, 'barred', ends)
    end
  end
  if not holds(key, text) then return DONE end
  call('DEL', key)
  changed(key)
  return done(key)
end

-- w: withdraw. An undo that bars, and gives up the place in the queue.
function give_up.w(key, bar_ms, text)
  if queued > now then leave(key, string.sub(text, 1, -2)) end
  give_up.u(key, bar_ms, text)
  return done(key)
end

-- l: leave the queue, after a grant.
function give_up.l(key, _, text)
  if queued > now then leave(key, string.sub(text, 1, -2)) end
  return DONE
end

-- b: break by token, which is the text.
function give_up.b(key, _, text)
  local value = holder(key)
  if string.match(value, '^[%w_-]+ (%d+) %d+:') ~= text then return not_held(key) end
  call('DEL', key)
  changed(key)
  return done(key)
end

-- k: wake the first waiter, after a majority is free. It may have been told
-- already, when only this node was.
function give_up.k(key)
  if queued > now and call('EXISTS', key) == 0 then
    local _, w = queue_keys(key)
    call('HDEL', w, '!turn')
    next_turn(key)
  end
  return DONE
end

local answers, arg = {}, 7
for n = 4, #KEYS do
  local kind, ms, text = ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  if give_up[kind] then
    answers[n - 3] = give_up[kind](KEYS[n], ms, text)
  elseif admitted then
    answers[n - 3] = vote[kind](KEYS[n], ms, text)
  else
    answers[n - 3] = {QUARANTINED}
  end
  arg = arg + 3
end
if minted then call('HSET', control, 'token', last) end
return {now, admitted and 1 or 0, answers}
