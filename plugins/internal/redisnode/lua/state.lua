-- What the control string and the clock say, and how a lock key is looked at.

-- read_state reads them, and the strings at more keys, which it returns. With
-- an error that is nil and the error.
local function read_state(...)
  local s, t = try('MGET', control, ...), try('TIME')
  if s.err or t.err then return nil, s.err and s or t end
  now = t[1] * 1000000 + t[2]
  local text = s[1] or ''
  last, barred = tonumber(string.sub(text, 1, 16)) or 0, tonumber(string.sub(text, 17, 32)) or 0
  queued, observed = tonumber(string.sub(text, 33, 48)) or 0, tonumber(string.sub(text, 49)) or 0
  return s
end

-- write_state writes the field of the control string that begins at index.
local function write_state(index, number)
  return call('SETRANGE', control, index - 1, format('%016.0f', number))
end

local function changed(key)
  if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
end

local function is_barred(owner)
  return barred > now and call('ZSCORE', bars, owner)
end

-- bar has the store refuse owner until ends.
--
-- Note: the removal comes before the ZADD because a server at maxmemory lets
-- a script go on that has written something.
local function bar(owner, bar_ms)
  local ends = now + bar_ms * 1000
  call('ZREMRANGEBYSCORE', bars, '-inf', now)
  call('ZADD', bars, ends, owner)
  call('PEXPIRE', bars, bar_ms)
  if ends > barred then
    barred = ends
    write_state(17, ends)
  end
end

-- holder returns the head of key's value (owner, token and label fit) and its
-- remaining milliseconds: -1 without an end, -2 when nobody holds it.
local function holder(key)
  local value = try('GETRANGE', key, '0', '511')
  if type(value) == 'table' then
    value = '(' .. call('TYPE', key).ok .. ')'
  end
  return value, call('PTTL', key)
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
