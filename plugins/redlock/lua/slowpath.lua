-- The parts of vote.lua that are rarely needed.
local minted = 0 -- the highest token that this script must write to the counter of tokens

local function has_tombstone(owner)
  return tombstones_until > now and call('ZSCORE', tombstones, owner)
end

local function read_queue(key) return call('GET', side .. 'l:{' .. key .. '}') end

-- count returns the number of waiters in text, the reply of GET. It is -1 if text is an error.
local function count(text)
  if type(text) == 'table' then return -1 end
  return text and select(2, string.gsub(text, '\n', '')) - 1 or 0
end

-- wait_for_turn returns the refusal of an acquire if it is another waiter's turn. Otherwise it
-- returns nil.
local function wait_for_turn(key, owner, text)
  if string.match(text, '^%d+\n(%S+)') == owner or call('EXISTS', key) == 1 then return nil end
  local first, ends = next_turn(key, text, owner)
  if first and first ~= owner then return {TURN, math.ceil((ends - now) / 1000)} end
end

-- hint wakes the first waiter without giving it a turn, because the holder's
-- remaining time has changed.
local function hint(key)
  local owner, channel = string.match(read_queue(key) or '', '^%d+\n(%S+) %d+ (%S+)')
  if owner then call('PUBLISH', side .. 'i:' .. channel, owner) end
end

local function ended(key)
  if queued > now and read_queue(key) then return FREED end
  return DONE
end

-- split returns the owner, the token and the rest of "owner token rest".
local function split(text)
  local owner, token, from = string.match(text, '^([%w_-]+) (%d+) ()')
  return owner, token, string.sub(text, from)
end

-- raise records a grant's token for this node's counter of tokens, and returns the highest token
-- recorded.
local function raise(token)
  token = tonumber(token)
  if token > last then last, minted = token, token end
  return minted
end

-- holds reports whether key's value starts with id.
local function holds(key, id)
  return try('GETRANGE', key, '0', #id - 1) == id
end

-- held reports whether this node has the lease. If the grant's token is not written here yet, the
-- value has the token 0.
local function held(key, owner, token)
  return holds(key, owner .. ' ' .. token .. ' ') or token ~= '0' and holds(key, owner .. ' 0 ')
end

-- with_token replaces the token in a lock key's value; the TTL stays.
local function with_token(key, owner, token)
  local _, _, rest = split(call('GET', key))
  call('SET', key, owner .. ' ' .. token .. ' ' .. rest, 'KEEPTTL')
  raise(token)
end

-- place checks the guessed token in the text of an acquire, "owner token rest". A guess above this
-- node's clock and above every token that this node has seen is accepted: place returns text, nil
-- and the guess. For any other guess, it returns the text of a grant without a token, and the
-- number that the token must exceed.
local function place(text)
  local owner, guess, rest = split(text)
  local floor = math.max(last, now)
  if tonumber(guess) > floor then return text, nil, guess end
  return owner .. ' 0 ' .. rest, floor
end

local other = {}

-- s: settle. Writes the token of a grant if the grant is still there, with the guessed token or
-- without a token. In the text, the guess follows the new token. Without this check, a late request
-- could change a later attempt of its owner.
function other.s(key, _, text)
  local owner, token, guess = split(text)
  if not holds(key, owner .. ' 0 ') and not holds(key, owner .. ' ' .. guess) then return not_held(key) end
  with_token(key, owner, token)
  return DONE
end

-- r: renew. The lease's token may not be written on this node yet.
function other.r(key, ttl_ms, text)
  local owner, token = split(text)
  if not held(key, owner, token) then return not_held(key) end
  with_token(key, owner, token)
  return call('PEXPIRE', key, ttl_ms)
end

-- h: repair. Copies a lease, which a majority has just granted or renewed, to this node,
-- which lacks it. The text is the value.
function other.h(key, ttl_ms, text)
  local owner, token = split(text)
  if has_tombstone(owner) then return {WITHDRAWN} end
  if call('SET', key, text, 'NX', 'PX', ttl_ms) then
    raise(token)
    changed(key)
    return DONE
  end
  local by, ms = holder(key)
  return {HELD, by, ms}
end

-- p: proclaim. The text is owner, token and the new value.
function other.p(key, _, text)
  local owner, token, value = split(text)
  if not held(key, owner, token) then return not_held(key) end
  local old = call('GET', key)
  local length, from = string.match(old, '^%d+ (%d+):()', #owner + 2)
  call('SET', key, string.sub(old, 1, from + length - 1) .. value, 'KEEPTTL')
  changed(key)
  return DONE
end

-- i: inspect.
function other.i(key)
  local value = try('GET', key)
  if type(value) == 'table' then value = holder(key) end
  return {0, value or '', call('PTTL', key), count(read_queue(key))}
end

-- c: check. Uses every command but changes nothing. The owner stands for a channel.
function other.c(key, _, text)
  use_all(key, (split(text)))
  return DONE
end

-- o: over. Replies whether the owner has a tombstone.
function other.o(key, _, text)
  return has_tombstone((split(text))) and DONE or not_held(key)
end

-- d: release. The text is that of r. With milliseconds, the lock stays taken for at most that time.
function other.d(key, keep_ms, text)
  local owner, token = split(text)
  if not held(key, owner, token) then return not_held(key) end
  keep_ms = tonumber(keep_ms)
  if keep_ms == 0 then
    call('DEL', key)
    changed(key)
    return ended(key)
  end
  -- A kept lease must have its token. A late undo of an earlier attempt by the same owner could
  -- delete a lease without a token.
  if not holds(key, owner .. ' ' .. token .. ' ') then with_token(key, owner, token) end
  if call('PTTL', key) > keep_ms then
    call('PEXPIRE', key, keep_ms)
    if queued > now then hint(key) end
  end
  return DONE
end

-- u: undo. Ends what an owner still holds after its release, with any token; w does this for a
-- withdrawal. The owner also gets a tombstone, because its request may still be on its way. The
-- undo of one attempt, which has no milliseconds, is in vote.lua.
function other.u(key, tombstone_ms, text)
  local owner = split(text)
  put_tombstone(owner, tonumber(tombstone_ms))
  if not holds(key, owner .. ' ') then return DONE end
  call('DEL', key)
  changed(key)
  return ended(key)
end

-- w: withdraw. Does what u does, and also gives up the place in the queue.
function other.w(key, tombstone_ms, text)
  if queued > now then leave(key, (split(text))) end
  other.u(key, tombstone_ms, text)
  return ended(key)
end

-- l: leave the queue, after a grant.
function other.l(key, _, text)
  if queued > now then leave(key, (split(text))) end
  return DONE
end

-- b: break the lease with the token. The text is like that of r, without an owner.
function other.b(key, _, text)
  local value = holder(key)
  if string.match(value, '^[%w_-]+ (%d+) %d+:') ~= string.match(text, '%d+') then return not_held(key) end
  call('DEL', key)
  changed(key)
  return ended(key)
end

-- k: wake the first waiter, because the lock is now free on a majority. The waiter may have been
-- woken before, when the lock was free only on this node.
function other.k(key)
  if queued > now and call('EXISTS', key) == 0 then
    local text = read_queue(key)
    if text then next_turn(key, (string.gsub(text, '^%d+', '0', 1))) end
  end
  return DONE
end

-- take_back undoes the grants of this script because their tokens could not be written.
local function take_back(answers, refused)
  for n = 1, #answers do
    if ARGV[3 * n + 6] == 'a' and type(answers[n]) == 'number' then
      call('DEL', KEYS[n + 1])
      answers[n] = refused
    end
  end
end

return {
  guarded = guarded, place = place, raise = raise, wait_for_turn = wait_for_turn,
  other = other, take_back = take_back,
}
