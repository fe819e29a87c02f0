-- The queue of a lock, a string that is there only while somebody waits: until
-- when the first waiter has its turn, 0 while nobody has one, and then in their
-- order a line for each: owner, until when it is alive, and on which channel it
-- listens. Whoever is first keeps the lock from everybody else while it is
-- free; a turn that nobody takes is over after TURN_US.
local ALIVE_US, TURN_US, KEY_MS = 2000000, 250000, 2500

local function queue_key(key) return side .. 'q:{' .. key .. '}' end

local function read_queue(key) return call('GET', queue_key(key)) end

-- count is how many wait by what GET replied, -1 when that was an error.
local function count(text)
  if type(text) == 'table' then return -1 end
  return text and select(2, string.gsub(text, '\n', '')) - 1 or 0
end

-- is_first reports whether owner is the first in the queue text.
local function is_first(text, owner)
  return string.match(text, '^%d+\n(%S+)') == owner
end

-- find returns where owner's line in text begins, at the newline before it, and
-- the newline that ends it; nil when owner does not wait.
local function find(text, owner)
  local from = string.find(text, '\n' .. owner .. ' ', 1, true)
  if from then return from, string.find(text, '\n', from + 1, true) end
end

-- leave takes owner out of key's queue and reports whether it was there. The
-- text need not be new: it is only used when owner is the first, because then
-- nobody was taken out since.
local function leave(key, owner, text)
  if not text or not is_first(text, owner) then text = read_queue(key) end
  local from, to = find(text or '', owner)
  if not from then return false end
  text = (is_first(text, owner) and '0' or string.sub(text, 1, from - 1)) .. string.sub(text, to)
  if text == '0\n' then
    call('DEL', queue_key(key))
  else
    call('SET', queue_key(key), text, 'KEEPTTL')
  end
  return true
end

-- enter gives owner a place in key's queue text, on channel, or keeps the one
-- that it has alive, and says in control that there is a queue. It returns the
-- text, nil without a place. When the lock is held a turn of owner is over.
local function enter(key, text, owner, channel, held)
  text = text or '0\n'
  local from, to = find(text, owner)
  if not from and not channel then return nil end
  channel = channel or string.match(text, ' (%S+)', from + #owner + 2)
  local line = '\n' .. owner .. format(' %.0f ', now + ALIVE_US) .. channel
  if not from then
    text = string.sub(text, 1, -2) .. line .. '\n'
  else
    text = (held and is_first(text, owner) and '0' or string.sub(text, 1, from - 1)) .. line .. string.sub(text, to)
  end
  call('SET', queue_key(key), text, 'PX', KEY_MS)
  if queued < now + KEY_MS * 1000 then
    queued = now + KEY_MS * 1000 + 500000
    write_state(33, queued)
  end
  return text
end

-- next_turn finds whose turn it is for the free lock key, wakes that waiter
-- unless it is me, and returns it and when its turn ends. Waiters that died,
-- do not listen or missed their turn lose their place. It returns nil when
-- nobody waits.
--
-- In Cluster PUBLISH counts only the listeners of this node, so a count of
-- zero says nothing there.
local function next_turn(key, text, me)
  if not text then return nil end
  local ends, rest = string.match(text, '^(%d+)\n()')
  ends = tonumber(ends)
  while true do
    local owner, alive, channel, behind = string.match(text, '^(%S+) (%d+) (%S+)\n()', rest)
    if not owner then
      call('DEL', queue_key(key))
      return nil
    end
    if tonumber(alive) >= now then
      -- A turn that ends later than it can was given before the clock stepped
      -- back, and would keep the free lock for that long.
      if owner ~= me and ends > now and ends <= now + TURN_US then return owner, ends end
      if owner == me or ends > now
        or ends == 0 and (call('PUBLISH', side .. 'i:' .. channel, owner) > 0 or cluster) then
        ends = now + TURN_US
        call('SET', queue_key(key), format('%.0f\n', ends) .. string.sub(text, rest), 'KEEPTTL')
        return owner, ends
      end
    end
    rest, ends = behind, 0
  end
end

-- wait_for_turn makes sure that nobody else's turn is passed over, and returns
-- the refusal if it would be.
local function wait_for_turn(key, owner, text)
  if is_first(text, owner) or call('EXISTS', key) == 1 then return nil end
  local first, ends = next_turn(key, text, owner)
  if first and first ~= owner then return {TURN, math.ceil((ends - now) / 1000)} end
end

-- refuse is the refusal of an acquire that found the lock taken, by value if
-- that is known. It keeps the place of owner in the queue text.
local function refuse(key, owner, text, value)
  local by, ms
  if value then
    by, ms = string.sub(value, 1, 512), call('PTTL', key)
  else
    by, ms = holder(key)
  end
  local waits = text and type(guarded(enter, key, text, owner, nil, true)) == 'string'
  return {HELD, by, ms, waits and 1 or 0}
end

-- hint wakes the first waiter without giving it a turn: what it knows about
-- the holder's remaining time is no longer true.
local function hint(key)
  local owner, channel = string.match(read_queue(key) or '', '^%d+\n(%S+) %d+ (%S+)')
  if owner then call('PUBLISH', side .. 'i:' .. channel, owner) end
end

-- freed is called after key was deleted, which stands whatever comes of this.
local function freed(key)
  if not now and select(2, read_state()) then return end
  if queued > now then guarded(function() next_turn(key, read_queue(key)) end) end
  changed(key)
end
