-- The functions of operate.lua that are rarely needed. A second result of such a function is the
-- token of a grant to a waiter.

-- keep shortens a lease instead of ending it. It tells the first waiter to ask,
-- because the holder's remaining time has changed.
local function keep(key, keep_ms)
  if call('PTTL', key) > tonumber(keep_ms) then
    call('PEXPIRE', key, keep_ms)
    local text = queued > now and call('GET', side .. 'q:{' .. key .. '}')
    local owner, process = string.match(text or '', '^\n(%S+) (%S+)')
    if owner then try('PUBLISH', side .. 'i:' .. process, owner) end
  end
  return 1
end

-- use renews or shortens a lease, even if it is a grant to a waiter that the waiter has not used.
local function use(key, kind, id, ms)
  if not settle(key, id) and not held_by(key, id, #id - 1) then return not_held(key) end
  return kind == 'r' and call('PEXPIRE', key, ms) or keep(key, ms)
end

-- withdraw begins with a tombstone for owner, because owner's acquire may still be on the way.
local function withdraw(key, owner, tombstone_ms, floor)
  put_tombstone(owner, tonumber(tombstone_ms))
  local left = queued > now and leave(key, owner)
  if held_by(key, owner .. ' ', #owner) then
    call('DEL', key)
  elseif not left or call('EXISTS', key) == 1 then
    return 1
  end
  return 1, freed(key, floor)
end

-- pass_on grants the free lock key to the first living waiter and then refuses owner. If owner is
-- that waiter, pass_on does neither.
local function pass_on(key, owner, text, floor)
  local token = call('EXISTS', key) == 0 and grant_next(key, text, owner, floor)
  if token then changed(key) end
  return token and refuse(key, owner, text), token
end

-- take_back undoes the grants of this script because their tokens could not be written.
local function take_back(replies, refused)
  for n = 1, #replies do
    if ARGV[4 * n + 1] == 'a' and type(replies[n]) == 'number' then
      call('DEL', KEYS[n])
      replies[n] = refused
    end
  end
end

return {guarded = guarded, pass_on = pass_on, use = use, withdraw = withdraw, take_back = take_back}
