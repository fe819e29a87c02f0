-- held_by reports whether key's value starts with id: "owner " or "owner token ".
local function held_by(key, id, last_index)
  return try('GETRANGE', key, '0', last_index) == id
end

-- settle replaces the "+" of a grant by a space when its owner first uses it. id is "owner token ".
local function settle(key, id)
  local to = #id - 1
  return held_by(key, string.sub(id, 1, to) .. '+', to) and call('SETRANGE', key, to, ' ')
end

-- freed grants the lock of key, which was just deleted, to the next waiter. It returns the token,
-- or nil without a grant. If the grant fails, key stays deleted.
local function freed(key, floor)
  if not now and select(2, read_state()) then return nil end
  local text, ok, token = queued > now and try('GET', side .. 'q:{' .. key .. '}'), nil, nil
  if type(text) == 'string' then ok, token = pcall(grant_next, key, text, nil, floor) end
  changed(key)
  return ok and token or nil
end
