-- Shared head of the scripts: what one prefix (in Cluster: one slot of a
-- prefix) keeps besides its lock keys, and how a lock key is looked at.
--
-- KEYS: control, bars, then the lock keys. ARGV: side, cluster, then the
-- script's own. The control hash has four fields:
--   token     the last token that was minted
--   barred    until when an owner may stand in bars
--   queued    until when somebody may wait in a queue
--   observed  until when somebody may observe
-- The last three keep the ordinary acquire and release from looking at keys
-- that are hardly ever there. All instants are microseconds by TIME.
--
-- A number must reach Redis as a number or through %.0f: tostring and ".."
-- would cut a token to 1.7951709358938e+15.
local call, try, format = redis.call, redis.pcall, string.format
local control, bars, side, cluster = KEYS[1], KEYS[2], ARGV[1], ARGV[2] == '1'
local HELD, NOT_HELD, WITHDRAWN, TURN = 1, 2, 3, 4
local now, last, barred, queued, observed

local function read_state()
  local s = call('HMGET', control, 'token', 'barred', 'queued', 'observed')
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  last, barred = tonumber(s[1] or 0), tonumber(s[2] or 0)
  queued, observed = tonumber(s[3] or 0), tonumber(s[4] or 0)
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

local function changed(key)
  if observed > now then call('PUBLISH', side .. 'o:' .. key, '') end
end
