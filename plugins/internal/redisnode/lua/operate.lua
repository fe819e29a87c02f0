-- Acquires, renewals, releases and withdrawals, one or many. ARGV after the head, four for each
-- lock key: kind, id, milliseconds, rest. The reply to an operation that was done is a token or 1.
-- Any other reply is an array that starts with a code of head.lua. If the server refuses one
-- operation, the others are still done. (A refusal is not sent as an error reply, because then the
-- client would fail the whole call.)
--
-- Each call runs the script from its first line, and defining the functions costs more than the
-- usual acquire. So the function library defines them only when they are needed, either the queue's
-- functions or all. It shares no local variables with this part, because that costs time too.
--
-- The script reads the first lock's queue and value together with the control string. A single
-- renewal skips this read, because it needs none of these and Redis may refuse the read while the
-- lock's slot moves. A release is done even if this read was refused.
local state, refused, now, last = {}, nil, nil, nil
local tombstones_until, queued, observed = 0, 0, 0
if ARGV[5] ~= 'r' or ARGV[9] then
  state = try('MGET', control, side .. 'q:{' .. KEYS[1] .. '}', KEYS[1])
  if state.err then state, refused = {}, state end
  local text, sub = state[1], string.sub
  if text and #text > 16 then
    tombstones_until, queued = tonumber(sub(text, 17, 32)) or 0, tonumber(sub(text, 33, 48)) or 0
    observed = tonumber(sub(text, 49)) or 0
  end
end
local replies, arg, lib, queue, minted = {}, 5, nil, nil, false
for n = 1, (#ARGV - 4) / 4 do
  local key, kind, id, ms, rest = KEYS[n], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3]
  local reply, token, waiters, value
  arg = arg + 4
  if n == 1 then waiters, value = state[2], state[3] end
  if kind == 'a' then
    -- id is the owner; rest is the length of the label, the label and the value.
    reply = refused
    if not reply and value and tombstones_until == 0 and not (waiters and string.find(waiters, id, 1, true)) then
      reply = library(now, last, tombstones_until, queued, observed, true).refuse(key, id, nil, value, ms, rest)
    elseif not reply and not now then
      local t = try('TIME')
      if t.err then
        reply, refused = t, t
      else
        now = t[1] * 1000000 + t[2]
      end
    end
    if not reply and tombstones_until > 0 and tombstones_until > now and try('ZSCORE', tombstones, id) then reply = {WITHDRAWN} end
    if not reply and n > 1 and queued > now then
      waiters = try('GET', side .. 'q:{' .. key .. '}')
      waiters = type(waiters) == 'string' and waiters
    end
    if not reply and waiters and not value and string.match(waiters, '^\n(%S+)') ~= id then
      lib = lib or library(now, last, tombstones_until, queued, observed)
      reply, token = lib.guarded(lib.pass_on, key, id, waiters, last)
      last = token or last
    end
    if not reply then
      last = last or state[1] and tonumber(string.sub(state[1], 1, 16)) or 0
      token = last + 1
      if now > token then token = now end
      reply = not value and try('SET', key, id .. format(' %.0f ', token) .. rest, 'NX', 'PX', ms)
      if not reply then
        queue = queue or library(now, last, tombstones_until, queued, observed, true)
        reply = queue.refuse(key, id, waiters, value, ms, rest)
      elseif not reply.err then
        reply, last, minted = token, token, true
        if waiters then
          queue = queue or library(now, last, tombstones_until, queued, observed, true)
          pcall(queue.leave, key, id)
        end
        if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
      end
    end
  elseif kind == 'w' then
    lib = lib or library(now, last, tombstones_until, queued, observed)
    reply, token = lib.guarded(lib.withdraw, key, id, ms, last)
    last, tombstones_until = token or last, math.huge
  else
    -- id is "owner token ", and rest is the index of its last byte.
    local head = n == 1 and state[1] ~= nil and (value and string.sub(value, 1, #id) or '') or try('GETRANGE', key, '0', rest)
    if kind == 'd' and ms == '0' and (head == id or head == string.sub(id, 1, -2) .. '+') then
      if waiters or observed > 0 or n > 1 and queued > 0 then
        local t = now or try('TIME')
        if type(t) == 'table' then t = t.err and math.huge or t[1] * 1000000 + t[2] end
        if n > 1 and queued > t then
          waiters = try('GET', side .. 'q:{' .. key .. '}')
          waiters = type(waiters) == 'string' and waiters
        end
        if waiters and t < math.huge then
          queue = queue or library(t, last, tombstones_until, queued, observed, true)
          local ok, granted = pcall(queue.grant_next, key, waiters, nil, last or state[1] and tonumber(string.sub(state[1], 1, 16)))
          token = ok and granted
          last = token or last
        end
        if observed > t then try('PUBLISH', side .. 'o:' .. key, '') end
      end
      reply = token and 1 or try('DEL', key)
    elseif kind == 'r' and head == id then
      reply = try('PEXPIRE', key, ms)
    else
      lib = lib or library(now, last, tombstones_until, queued, observed)
      reply = lib.guarded(lib.use, key, kind, id, ms)
    end
  end
  if type(reply) == 'table' and reply.err then reply = {REFUSED, reply.err} end
  replies[n] = reply
end
if minted then
  local written = try('SETRANGE', control, 0, format('%016.0f', last))
  if type(written) == 'table' then
    lib = lib or library(now, last, tombstones_until, queued, observed)
    lib.take_back(replies, {REFUSED, written.err})
  end
end
return replies
