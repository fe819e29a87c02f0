-- Replies the value, the remaining milliseconds and the number of waiters of each lock key. The
-- number of waiters is -1 if it cannot be read. ARGV after the head: 1 if the caller observes the
-- locks, so that scripts must publish changes for a while.
local OBSERVED_US = 3000000
if ARGV[5] == '1' and read_state() and observed < now + OBSERVED_US / 2 then
  guarded(write_state, 49, now + OBSERVED_US)
end
local replies = {}
for n = 1, #KEYS do
  local key = KEYS[n]
  local value = try('GET', key)
  if type(value) == 'table' then value = holder(key) end
  local text = try('GET', side .. 'q:{' .. key .. '}') or ''
  replies[n] = {value or '', call('PTTL', key), type(text) == 'string' and select(2, string.gsub(text, '\n', '')) or -1}
end
return replies
