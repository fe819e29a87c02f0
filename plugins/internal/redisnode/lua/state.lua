-- What the control hash and the clock say, and how a lock key is looked at.
local now, last, barred, queued, observed

-- read_state returns the error that kept it from reading.
local function read_state()
  local s, t = try('HMGET', control, 'token', 'barred', 'queued', 'observed'), try('TIME')
  if s.err or t.err then return s.err and s or t end
  now = t[1] * 1000000 + t[2]
  last, barred = tonumber(s[1] or 0), tonumber(s[2] or 0)
  queued, observed = tonumber(s[3] or 0), tonumber(s[4] or 0)
end

local function changed(key)
  if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
end

-- next_token rises over release, expiry and a clock that jumps back; the clock
-- is its floor, so that it rises over lost data too.
local function next_token()
  if now > last then return now end
  return last + 1
end

local function is_barred(owner)
  return barred > now and call('ZSCORE', bars, owner)
end

local function value_of(owner, token, tail)
  return owner .. format(' %.0f ', token) .. tail
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
  local denied = not now and read_state()
  if denied then return denied end
  local ok, reply = pcall(f, ...)
  if ok or type(reply) == 'table' then return reply end
  return {err = reply}
end
