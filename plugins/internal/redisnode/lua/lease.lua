-- held_by compares the head of key's value with id, "owner " or "owner token ".
local function held_by(key, id, last_index)
  return try('GETRANGE', key, '0', last_index) == id
end

-- settle takes the mark off a grant whose owner uses it first. id is "owner token ".
local function settle(key, id)
  local to = #id - 1
  return held_by(key, string.sub(id, 1, to) .. '+', to) and call('SETRANGE', key, to, ' ')
end

-- freed grants key, which was deleted, to its next waiter and returns the token, if
-- there is one. That it is free stands whatever comes of this.
local function freed(key, floor)
  if not now and select(2, read_state()) then return nil end
  local text, ok, token = queued > now and try('GET', side .. 'q:{' .. key .. '}'), nil, nil
  if type(text) == 'string' then ok, token = pcall(grant_next, key, text, nil, floor) end
  changed(key)
  return ok and token or nil
end
