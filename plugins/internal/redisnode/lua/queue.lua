-- The queue of a lock, a string that exists only while an owner waits. It has a newline and an
-- entry for each waiter, in order: owner, process, milliseconds for which the store may grant the
-- lock, and the lock's value after the token. In an entry, %0 stands for "%" and %1 for a newline.
-- A script that frees the lock, or finds it free, grants it in the same step to the first waiter
-- whose process lives. This grant has a "+" behind the token and ends soon, unless its owner uses
-- it. The owner learns of it by a push or, if the push is lost, by its next acquire.
--
-- Two owners never hold the lock at once. A process counts as alive while the key of its last sign
-- of life exists. Its value is the instant, by the process's own clock, at which the process sent
-- the sign. The push carries this instant back, and the owner counts the grant's time from it. The
-- sign was sent before the grant was made. So the owner's grant ends before the store's, however
-- late the push is.
--
-- The functions are few and call none of another file: defining one takes longer than a command.
local KEY_MS = 3500

-- holder returns the beginning of key's value, in which owner, token and label have room. It also
-- returns the key's remaining milliseconds: -1 without an end, -2 when the lock is free.
local function holder(key)
  local value = try('GETRANGE', key, '0', '511')
  if type(value) == 'table' then value = '(' .. call('TYPE', key).ok .. ')' end
  return value, call('PTTL', key)
end

-- leave takes owner out of key's queue and reports whether it was there.
local function leave(key, owner)
  local q = side .. 'q:{' .. key .. '}'
  local text = call('GET', q) or ''
  local from = string.find(text, '\n' .. owner .. ' ', 1, true)
  if not from then return false end
  text = string.sub(text, 1, from - 1) .. string.sub(text, string.find(text, '\n', from + 1, true) or #text + 1)
  if text == '' then call('DEL', q) else call('SET', q, text, 'KEEPTTL') end
  return true
end

-- enter gives owner a place at the end of key's queue text, or keeps its place,
-- and notes in control that there is a queue. Without an entry it only keeps a
-- place. It returns the queue text, or nil when owner has no place.
local function enter(key, text, owner, entry)
  local q, from = side .. 'q:{' .. key .. '}', text and string.find(text, '\n' .. owner .. ' ', 1, true)
  local line = entry and '\n' .. owner .. ' ' .. entry
  if not (from or line) then return nil end
  if not text then
    text = line
    call('SET', q, text, 'PX', KEY_MS)
  elseif not from then
    call('SETRANGE', q, #text, line)
    text = text .. line
  elseif line and string.sub(text, from, from + #line - 1) ~= line then -- a new plugin process
    text = string.sub(text, 1, from - 1) .. line .. string.sub(text, string.find(text, '\n', from + 1, true) or #text + 1)
    call('SET', q, text, 'KEEPTTL')
  end
  if text ~= line and call('PTTL', q) < KEY_MS - 1000 then call('PEXPIRE', q, KEY_MS) end
  if queued < now + KEY_MS * 1000 then
    queued = now + KEY_MS * 1000 + 500000
    call('SETRANGE', control, 32, format('%016.0f', queued))
  end
  return text
end

-- grant_next grants the lock key to the first waiter in its queue text whose process lives and
-- listens. If that waiter is the owner me, it grants nothing, because me is asking now. The waiters
-- before it lose their places. The next waiter is told to ask when the grant would end unused.
-- grant_next returns the token. Without a grant it returns nil, and key is unchanged or deleted.
-- floor is the last token if the caller has read it.
--
-- The push comes last, because the grant that it reports must be done. If there is no last token,
-- the control string is on another node of a Cluster. In a Cluster, PUBLISH counts only this node's
-- listeners.
local function grant_next(key, text, me, floor)
  local q, at, token = side .. 'q:{' .. key .. '}', 1, nil
  local last = floor or tonumber(call('GETRANGE', control, '0', '15'))
  while last do
    local owner, process, ms, tail, behind = string.match(text, '^\n(%S+) (%S+) (%d+) ([^\n]*)()', at)
    if not owner or owner == me then
      if owner then call('SET', q, string.sub(text, at), 'KEEPTTL') else call('DEL', q) end
      return nil
    end
    local sign = call('GET', control .. process)
    if sign then
      if not token then
        token = math.max(last + 1, now)
        call('SETRANGE', control, 0, format('%016.0f', token))
      end
      if string.find(tail, '%', 1, true) then tail = string.gsub(tail, '%%(%d)', {['0'] = '%', ['1'] = '\n'}) end
      call('SET', key, owner .. format(' %.0f+', token) .. tail, 'PX', ms)
      local rest = string.sub(text, behind)
      if rest == '' then call('DEL', q) else call('SET', q, rest, 'KEEPTTL') end
      local heard = try('PUBLISH', side .. 'i:' .. process, owner .. format(' %.0f ', token) .. sign .. ' ' .. ms)
      if cluster or type(heard) == 'number' and heard > 0 then
        local second, listens = string.match(rest, '^\n(%S+) (%S+)')
        if second then try('PUBLISH', side .. 'i:' .. listens, second .. ' ' .. ms) end
        return token
      end
      call('DEL', key)
    end
    at = behind
  end
end

-- refuse is the reply to an acquire that found the lock taken; value is the key's value
-- if it is known. The reply is the token if the store has already granted the lock to
-- owner, and otherwise a refusal. refuse keeps owner's place in the queue text.
local function refuse(key, owner, text, value, ms, tail)
  local by, left = value and string.sub(value, 1, 512), value and call('PTTL', key)
  if not value then by, left = holder(key) end
  local granted, token = string.match(by, '^(%S+) (%d+)%+')
  if granted == owner then
    local done = try('SET', key, owner .. ' ' .. token .. ' ' .. tail, 'PX', ms)
    if observed > 0 then try('PUBLISH', side .. 'o:' .. key, '') end
    return done.err and done or tonumber(token)
  end
  local ok, waits
  if text then ok, waits = pcall(enter, key, text, owner) end
  return {HELD, by, left, ok and waits and 1 or 0}
end
