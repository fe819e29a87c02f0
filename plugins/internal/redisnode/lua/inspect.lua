-- Replies the value, the remaining milliseconds and the number of waiters of
-- each lock key. ARGV after the head: 1 when the caller goes on observing, so
-- that changes have to be published for a while.
local OBSERVED_US = 3000000
if ARGV[3] == '1' then
  read_state()
  if observed < now + OBSERVED_US / 2 then
    call('HSET', control, 'observed', now + OBSERVED_US)
  end
end
local replies = {}
for n = 3, #KEYS do
  local key = KEYS[n]
  local value = try('GET', key)
  if type(value) == 'table' then value = holder(key) end
  local waiters = call('ZCARD', (queue_keys(key)))
  replies[n - 2] = {value or '', call('PTTL', key), waiters}
end
return replies
