-- Acquires, renewals, releases and withdrawals, one or many. ARGV after the
-- head, four for each lock key: kind, id, milliseconds, rest. A reply is a
-- token or 1 when it was done, else an array that starts with one of the codes
-- of head.lua. What the server refuses to one, the others are not refused.
-- (An error among the replies would not do: the client takes it for all.)
--
-- A script runs from its first line at each call, and its functions cost as
-- much as the usual acquire. So library makes them when they are needed:
-- somebody waits for this lock, it is held, or the like. It shares no local
-- with what is here, because that costs too.
local now, last, barred, queued, observed
local replies, arg, lib, watch, minted = {}, 5, nil, nil, false
for n = 1, (#ARGV - 4) / 4 do
  local key, kind, id, ms, rest = KEYS[n], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local reply, waiters
  arg = arg + 4
  if kind == 'a' then
    -- id is the owner, rest the length of the label, the label and the value.
    if not now then
      local s, t = try('HMGET', control, 'token', 'barred', 'queued', 'observed'), try('TIME')
      if s.err or t.err then
        reply = s.err and s or t
      else
        now = t[1] * 1000000 + t[2]
        last, barred = tonumber(s[1] or 0), tonumber(s[2] or 0)
        queued, observed = tonumber(s[3] or 0), tonumber(s[4] or 0)
      end
    end
    if not reply and barred > now and try('ZSCORE', bars, id) then reply = {WITHDRAWN} end
    if not reply and queued > now and try('EXISTS', side .. 'q:{' .. key .. '}') == 1 then
      lib, waiters = lib or library(), true
      reply = lib.guarded(lib.wait_for_turn, key, id)
    end
    if not reply then
      local token = last + 1
      if now > token then token = now end
      reply = try('SET', key, id .. format(' %.0f ', token) .. rest, 'NX', 'PX', ms)
      if not reply then
        lib = lib or library()
        reply = lib.refuse(key, id, waiters)
      elseif not reply.err then
        reply, last, minted = token, token, true
        if waiters then lib.guarded(lib.leave, key, id) end
        if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
      end
    end
  elseif kind == 'w' then
    lib = lib or library()
    reply = lib.guarded(lib.withdraw, key, id, ms)
    if now then barred = now + 1 end
  elseif try('GETRANGE', key, '0', rest) ~= id then
    -- id is "owner token " and rest its last index.
    lib = lib or library()
    reply = lib.not_held(key)
  elseif kind == 'r' then
    reply = try('PEXPIRE', key, ms)
  elseif ms == '0' then
    reply = try('DEL', key)
    watch = watch or try('HMGET', control, 'queued', 'observed')
    if reply == 1 and (watch[1] or watch[2]) then
      local t = try('TIME')
      t = t.err and math.huge or t[1] * 1000000 + t[2]
      if watch[1] and tonumber(watch[1]) > t and try('EXISTS', side .. 'q:{' .. key .. '}') == 1 then
        lib = lib or library()
        lib.guarded(lib.next_turn, key)
      end
      if watch[2] and tonumber(watch[2]) > t then try('PUBLISH', side .. 'o:' .. key, '') end
    end
  else
    lib = lib or library()
    reply = lib.guarded(lib.keep, key, ms)
  end
  if type(reply) == 'table' and reply.err then reply = {REFUSED, reply.err} end
  replies[n] = reply
end
if minted then
  local written = try('HSET', control, 'token', last)
  if type(written) == 'table' then
    lib = lib or library()
    lib.take_back(replies, {REFUSED, written.err})
  end
end
return replies
