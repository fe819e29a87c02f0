-- The parts of operate.lua that are not needed as a rule.

-- keep shortens a lease instead of ending it.
local function keep(key, keep_ms)
  if call('PTTL', key) > tonumber(keep_ms) then
    call('PEXPIRE', key, keep_ms)
    if queued > now then guarded(hint, key) end
  end
  return 1
end

-- withdraw puts a tombstone for owner first: its acquire may still be on the way.
local function withdraw(key, owner, tombstone_ms)
  put_tombstone(owner, tonumber(tombstone_ms))
  local left = queued > now and leave(key, owner)
  if held_by(key, owner .. ' ', #owner) then
    call('DEL', key)
    freed(key)
  elseif left and call('EXISTS', key) == 0 then
    guarded(wake_first, key)
  end
  return 1
end

-- take_back undoes the grants of this script, whose tokens were not written.
local function take_back(replies, refused)
  for n = 1, #replies do
    if ARGV[4 * n + 1] == 'a' and type(replies[n]) == 'number' then
      call('DEL', KEYS[n])
      replies[n] = refused
    end
  end
end

return {
  guarded = guarded, wait_for_turn = wait_for_turn, not_held = not_held, keep = keep, withdraw = withdraw,
  take_back = take_back,
}
