-- How the control string and a lock key are looked at and changed.

-- write_state writes the field of the control string that begins at index.
local function write_state(index, number)
  return call('SETRANGE', control, index - 1, format('%016.0f', number))
end

local function changed(key)
  if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
end

local function has_tombstone(owner)
  return tombstones_until > now and call('ZSCORE', tombstones, owner)
end

-- put_tombstone has the store refuse owner until ends.
--
-- Note: the removal comes before the ZADD because a server at maxmemory lets
-- a script go on that has written something.
local function put_tombstone(owner, tombstone_ms)
  local ends = now + tombstone_ms * 1000
  call('ZREMRANGEBYSCORE', tombstones, '-inf', now)
  call('ZADD', tombstones, ends, owner)
  call('PEXPIRE', tombstones, tombstone_ms)
  if ends > tombstones_until then
    tombstones_until = ends
    write_state(17, ends)
  end
end

-- held_by compares the head of key's value with id, "owner " or "owner token ".
-- Its last index comes as text: to write out a number costs more than to read.
local function held_by(key, id, last_index)
  return try('GETRANGE', key, '0', last_index) == id
end

local function not_held(key)
  local value, ms = holder(key)
  return {NOT_HELD, value, ms}
end

-- guarded calls f and returns what it returns, or its error as a reply.
local function guarded(f, ...)
  if not now then
    local _, denied = read_state()
    if denied then return denied end
  end
  local ok, reply = pcall(f, ...)
  if ok or type(reply) == 'table' then return reply end
  return {err = reply}
end

local function read_queue(key) return call('GET', side .. 'l:{' .. key .. '}') end

-- count is how many wait by what GET replied, -1 when that was an error.
local function count(text)
  if type(text) == 'table' then return -1 end
  return text and select(2, string.gsub(text, '\n', '')) - 1 or 0
end

-- wake_first gives the first waiter for the free lock key its turn.
local function wake_first(key)
  local text = read_queue(key)
  if text then next_turn(key, text) end
end

-- wait_for_turn makes sure that nobody else's turn is passed over, and returns
-- the refusal if it would be.
local function wait_for_turn(key, owner, text)
  if string.match(text, '^%d+\n(%S+)') == owner or call('EXISTS', key) == 1 then return nil end
  local first, ends = next_turn(key, text, owner)
  if first and first ~= owner then return {TURN, math.ceil((ends - now) / 1000)} end
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
  if queued > now then guarded(wake_first, key) end
  changed(key)
end
