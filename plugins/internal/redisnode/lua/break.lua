-- Ends the lease that has the given token, for any owner. ARGV after the head: token. Replies 1.
local key = KEYS[1]
local value = holder(key)
if string.match(value, '^[%w_-]+ (%d+)[ +]%d+:') ~= ARGV[5] then
  return not_held(key)
end
call('DEL', key)
freed(key)
return 1
