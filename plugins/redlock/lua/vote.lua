-- Executes a batch of requests on one node in one step, and answers each of them. KEYS has the
-- marker key and then the lock keys. ARGV after the head: the marker that this node must have (""
-- for none), three hints, and for each lock key a kind, milliseconds, and "owner token
-- rest" as a text.
--
-- The first two hints are the lowest and the highest token that acquires of this batch guess, or 0
-- without acquires. The third is the index of the last byte in each other request's text, or "" if
-- these texts differ in length. It is passed because Lua would convert a number to text more
-- slowly. All hints are "" if the tokens do not rise in the order of the requests.
--
-- Replies {now, admitted, answers}: TIME in microseconds, 1 when the marker is right, and an answer
-- to each request. An answer is a number if the request was done. Otherwise it is an array that
-- starts with a code from head.lua, here or in redisnode. A node whose marker is wrong has lost its
-- data. It still executes the requests that end a lease, but does not vote.
--
-- As in operate.lua of the redis backend, functions are defined when they are needed, and share no
-- local variables with this part. A call without lock keys only checks the marker.
local state, time = call('MGET', control, side .. 'l:{' .. (KEYS[2] or '') .. '}'), call('TIME')
local now = time[1] * 1000000 + time[2]
local text, sub = state[1] or '', string.sub
local last, tombstones_until, queued, observed = tonumber(sub(text, 1, 16)) or 0, 0, 0, 0
if #text > 16 then
  tombstones_until, queued = tonumber(sub(text, 17, 32)) or 0, tonumber(sub(text, 33, 48)) or 0
  observed = tonumber(sub(text, 49)) or 0
end
local admitted = ARGV[5] == '' or call('HGET', KEYS[1], 'marker') == ARGV[5]
local lowest, index = tonumber(ARGV[6]), ARGV[8]
-- If the lowest guess is above this node's clock and last token, no guess needs a check.
local fresh = lowest and (lowest == 0 or lowest > now and lowest > last)

local answers, arg, minted, lib, queue = {}, 9, false, nil, nil
for n = 2, #KEYS do
  local key, kind, ms, text = KEYS[n], ARGV[arg], ARGV[arg + 1], ARGV[arg + 2]
  local answer
  local waiters = n == 2 and state[2]
  if n > 2 and queued > now then
    waiters = try('GET', side .. 'l:{' .. key .. '}')
    waiters = type(waiters) == 'string' and waiters
  end
  arg = arg + 3
  if not admitted and not string.find('duwlbk', kind, 1, true) then
    answer = {QUARANTINED}
  elseif kind == 'a' then
    -- The text is the value with a guessed token. After a grant with this token, the answer is DONE
    -- or FREED. After a grant without it, the answer is the number that the token must exceed.
    if tombstones_until > now and try('ZSCORE', tombstones, string.match(text, '^[%w_-]+')) then
      answer = {WITHDRAWN}
    elseif waiters and string.match(waiters, '^%d+\n(%S+)') ~= string.match(text, '^[%w_-]+') then
      lib = lib or library(now, last, tombstones_until, queued, observed)
      answer = lib.guarded(lib.wait_for_turn, key, string.match(text, '^[%w_-]+'), waiters)
    end
    if not answer then
      local value, floor, guess = text, nil, nil
      if not fresh then
        lib = lib or library(now, last, tombstones_until, queued, observed)
        value, floor, guess = lib.place(text)
      end
      answer = try('SET', key, value, 'NX', 'PX', ms)
      if not answer then
        queue = queue or library(now, last, tombstones_until, queued, observed, true)
        answer = queue.refuse(key, string.match(text, '^[%w_-]+'), waiters)
      elseif not answer.err then
        answer = floor or waiters and FREED or DONE
        if fresh then
          minted = lowest > 0 and ARGV[7]
        elseif guess then
          lib.raise(guess)
        end
        if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
      end
    end
  elseif (kind == 'r' or kind == 'd' and ms == '0')
    and try('GETRANGE', key, '0', index == '' and #text - 1 or index) == text
    -- The rest of an undo's text lists the possible beginnings of its attempt's value, each after a
    -- newline. A beginning has at most 82 characters.
    or kind == 'u' and ms == '0'
    and string.find(text, '\n' .. (string.match(tostring(try('GETRANGE', key, '0', '81')), '^[%w_-]+ %d+ ') or '\n'), 1, true) then
    if kind == 'r' then
      answer = try('PEXPIRE', key, ms)
    else
      answer = try('DEL', key)
      if answer == 1 and waiters then answer = FREED end
      if observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
    end
  elseif kind == 'u' and ms == '0' then
    answer = DONE
  else
    lib = lib or library(now, last, tombstones_until, queued, observed)
    answer = lib.guarded(lib.other[kind], key, ms, text)
    fresh = fresh and (lowest == 0 or lowest > lib.raise(0))
    if kind == 'u' or kind == 'w' then tombstones_until = math.huge end
  end
  if type(answer) == 'table' and answer.err then answer = {REFUSED, answer.err} end
  answers[n - 1] = answer
end
if lib and lib.raise(0) > tonumber(minted or 0) then minted = lib.raise(0) end
if minted then
  local written = try('SETRANGE', control, 0, format('%016.0f', minted))
  if type(written) == 'table' then
    lib = lib or library(now, last, tombstones_until, queued, observed)
    lib.take_back(answers, {REFUSED, written.err})
  end
end
return {now, admitted and 1 or 0, answers}
