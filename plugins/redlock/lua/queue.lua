-- The queue of a lock, a string that exists only while an owner waits. It begins with the time at
-- which the first waiter's turn ends, or 0 while no waiter has a turn. A line for each waiter
-- follows, in order: owner, time until which it counts as alive (16 digits), and the channel on
-- which it listens. During its turn, only the first waiter can take the free lock. An unused turn
-- ends after TURN_US.
--
-- These functions are few and call none of another file, because defining one takes longer than a
-- command.
local ALIVE_US, TURN_US, KEY_MS = 2000000, 250000, 3500

-- holder returns the beginning of key's value, in which owner, token and label have room. It also
-- returns the key's remaining milliseconds: -1 without an end, -2 when the lock is free.
local function holder(key)
  local value = try('GETRANGE', key, '0', '511')
  if type(value) == 'table' then
    value = '(' .. call('TYPE', key).ok .. ')'
  end
  return value, call('PTTL', key)
end

-- leave takes owner out of key's queue and reports whether it was there. The text may be out of
-- date. It is used only if owner is its first waiter, because then no waiter can have been taken
-- out since the text was read.
local function leave(key, owner, text)
  local q = side .. 'l:{' .. key .. '}'
  if not text or string.match(text, '^%d+\n(%S+)') ~= owner then text = call('GET', q) or '' end
  local from = string.find(text, '\n' .. owner .. ' ', 1, true)
  if not from then return false end
  local before = string.sub(text, 1, from - 1)
  if not string.find(before, '\n', 1, true) then before = '0' end
  text = before .. string.sub(text, string.find(text, '\n', from + 1, true), -1)
  if text == '0\n' then
    call('DEL', q)
  else
    call('SET', q, text, 'KEEPTTL')
  end
  return true
end

-- enter gives owner, which listens on channel, a place in key's queue text, or keeps its place
-- there, and notes in control that there is a queue. It returns the text, or nil if owner has no
-- place; without a channel it gives no new place. If the lock is held, the returned text may be out
-- of date, and owner's turn ends.
--
-- It writes only what has changed. If each waiter wrote the whole queue every second, the bytes
-- written would grow with the square of the number of waiters.
local function enter(key, text, owner, channel, held)
  local q, alive = side .. 'l:{' .. key .. '}', format(' %016.0f ', now + ALIVE_US)
  local from = text and string.find(text, '\n' .. owner .. ' ', 1, true)
  if not from and not channel then return nil end
  local left = text and call('PTTL', q) or KEY_MS
  if from then
    local at, listens, to = from + #owner, string.match(text, ' (%S+)()', from + #owner + 2)
    local whole = channel and channel ~= listens -- a new plugin process
    if whole or not held then text = string.sub(text, 1, at) .. alive .. (channel or listens) .. string.sub(text, to) end
    if whole then call('SET', q, text, 'KEEPTTL') else call('SETRANGE', q, at, alive) end
    if held and string.match(text, '^[1-9]%d*()') == from then call('SETRANGE', q, 0, string.rep('0', from - 1)) end
  else
    local line = owner .. alive .. channel .. '\n'
    if text then call('SETRANGE', q, #text, line) else call('SET', q, '0\n' .. line, 'PX', KEY_MS) end
    text = (text or '0\n') .. line
  end
  if left < KEY_MS - 1000 then call('PEXPIRE', q, KEY_MS) end
  if queued < now + KEY_MS * 1000 then
    queued = now + KEY_MS * 1000 + 500000
    call('SETRANGE', control, 32, format('%016.0f', queued))
  end
  return text
end

-- next_turn finds the waiter whose turn it is for the free lock key. It wakes this waiter, unless
-- it is the owner me or its turn has begun. It returns the waiter and the end of the turn, or nil
-- if the queue is empty. Waiters that died, do not listen or missed their turn lose their place.
--
-- In a Cluster, PUBLISH counts only this node's listeners, so a count of zero says nothing.
local function next_turn(key, text, me)
  local q = side .. 'l:{' .. key .. '}'
  local ends, rest = string.match(text, '^(%d+)\n()')
  ends = tonumber(ends)
  while true do
    local owner, alive, channel, behind = string.match(text, '^(%S+) (%d+) (%S+)\n()', rest)
    if not owner then
      call('DEL', q)
      return nil
    end
    if tonumber(alive) >= now then
      -- A turn that ends later than TURN_US from now was given before the clock was set back. Such
      -- a turn would keep the free lock from others for too long.
      if owner ~= me and ends > now and ends <= now + TURN_US then return owner, ends end
      if owner == me or ends > now
        or ends == 0 and (call('PUBLISH', side .. 'i:' .. channel, owner) > 0 or cluster) then
        ends = now + TURN_US
        call('SET', q, format('%.0f\n', ends) .. string.sub(text, rest), 'KEEPTTL')
        return owner, ends
      end
    end
    rest, ends = behind, 0
  end
end

-- refuse returns the refusal for an acquire that found the lock taken. value is the key's value if
-- it is known. If the queue text has owner, refuse keeps owner's place.
local function refuse(key, owner, text, value)
  local by, ms
  if value then
    by, ms = string.sub(value, 1, 512), call('PTTL', key)
  else
    by, ms = holder(key)
  end
  local ok, waits
  if text then ok, waits = pcall(enter, key, text, owner, nil, true) end
  return {HELD, by, ms, ok and waits and 1 or 0}
end
