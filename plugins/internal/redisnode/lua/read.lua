-- read_state reads the control string and the server's clock, and the strings at the keys given.
-- It returns all strings, the control string first. After an error it returns nil and the error.
local function read_state(...)
  local s, t = try('MGET', control, ...), try('TIME')
  if s.err or t.err then return nil, s.err and s or t end
  now = t[1] * 1000000 + t[2]
  local text = s[1] or ''
  last, tombstones_until = tonumber(string.sub(text, 1, 16)) or 0, tonumber(string.sub(text, 17, 32)) or 0
  queued, observed = tonumber(string.sub(text, 33, 48)) or 0, tonumber(string.sub(text, 49)) or 0
  return s
end
