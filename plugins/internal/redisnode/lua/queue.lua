-- The queue of a lock, there only while somebody waits: a sorted set q of
-- owners in their order, and a hash w that has for each owner until when it is
-- alive and on which channel it listens, and in "!turn" whose turn it is and
-- until when. Whoever is first in q keeps the lock from everybody else while
-- it is free; a turn that nobody takes is over after TURN_US.
local ALIVE_US, TURN_US, KEY_MS = 2000000, 250000, 2500

local function queue_keys(key)
  return side .. 'q:{' .. key .. '}', side .. 'w:{' .. key .. '}'
end

local function get_turn(w)
  local turn = call('HGET', w, '!turn')
  if not turn then return nil, 0 end
  local ends, owner = string.match(turn, '^(%d+) (.+)$')
  return owner, tonumber(ends)
end

local function set_turn(w, owner)
  local ends = now + TURN_US
  call('HSET', w, '!turn', format('%.0f %s', ends, owner))
  return ends
end

-- leave takes owner out of key's queue and reports whether it was there.
local function leave(key, owner)
  local q, w = queue_keys(key)
  if call('ZREM', q, owner) == 0 then return false end
  call('HDEL', w, owner)
  if get_turn(w) == owner then call('HDEL', w, '!turn') end
  return true
end

-- keep_queue lets key's queue live on, and says in control that there is one.
local function keep_queue(q, w)
  call('PEXPIRE', q, KEY_MS)
  call('PEXPIRE', w, KEY_MS)
  if queued < now + KEY_MS * 1000 then
    queued = now + KEY_MS * 1000 + 500000
    call('HSET', control, 'queued', queued)
  end
end

-- stay keeps owner's place in key's queue alive, and reports whether it has
-- one. The lock was just found held: a turn that owner had is over.
local function stay(key, owner)
  local q, w = queue_keys(key)
  local entry = call('HGET', w, owner)
  if not entry or not call('ZSCORE', q, owner) then return false end
  local channel = string.match(entry, '^%d+ (.+)$')
  call('HSET', w, owner, format('%.0f %s', now + ALIVE_US, channel))
  if get_turn(w) == owner then call('HDEL', w, '!turn') end
  keep_queue(q, w)
  return true
end

-- next_turn finds whose turn it is for the free lock key, wakes that waiter
-- unless it is me, and returns it and when its turn ends. Waiters that died,
-- do not listen or missed their turn lose their place. It returns nil when
-- nobody waits.
--
-- In Cluster PUBLISH counts only the listeners of this node, so a count of
-- zero says nothing there.
local function next_turn(key, me)
  local q, w = queue_keys(key)
  while true do
    local head = call('ZRANGE', q, 0, 0)[1]
    if not head then
      call('DEL', w)
      return nil
    end
    local entry = call('HGET', w, head)
    local alive, channel = string.match(entry or '0 -', '^(%d+) (.+)$')
    if tonumber(alive) >= now then
      local owner, ends = get_turn(w)
      if head == me then return head, set_turn(w, head) end
      if owner == head then
        -- A turn that ends later than it can was given before the clock
        -- stepped back, and would keep the free lock for that long.
        if ends > now + TURN_US then return head, set_turn(w, head) end
        if ends > now then return head, ends end
      elseif call('PUBLISH', side .. 'i:' .. channel, head) > 0 or cluster then
        return head, set_turn(w, head)
      end
    end
    leave(key, head)
  end
end

-- hint wakes the first waiter without giving it a turn: what it knows about
-- the holder's remaining time is no longer true.
local function hint(key)
  local q, w = queue_keys(key)
  local head = call('ZRANGE', q, 0, 0)[1]
  local entry = head and call('HGET', w, head)
  if entry then
    call('PUBLISH', side .. 'i:' .. string.match(entry, '^%d+ (.+)$'), head)
  end
end

-- freed is called after key was deleted, which stands whatever comes of this.
local function freed(key)
  if not now and read_state() then return end
  if queued > now then guarded(next_turn, key) end
  changed(key)
end
