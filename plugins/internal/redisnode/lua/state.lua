-- Helpers to read and change the control string and a lock key.

-- write_state writes the field of the control string that begins at index.
local function write_state(index, number)
  return call('SETRANGE', control, index - 1, format('%016.0f', number))
end

local function changed(key)
  if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
end

-- put_tombstone makes the store refuse owner for tombstone_ms.
--
-- Note: the removal comes before the ZADD, because it makes a server at maxmemory accept the
-- script's later writes.
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

local function not_held(key)
  local value, ms = holder(key)
  return {NOT_HELD, value, ms}
end

-- guarded reads the state if needed and calls f. It returns f's results, or f's error as a reply.
local function guarded(f, ...)
  if not now then
    local _, denied = read_state()
    if denied then return denied end
  end
  local ok, reply, more = pcall(f, ...)
  if ok or type(reply) == 'table' then return reply, more end
  return {err = reply}
end
