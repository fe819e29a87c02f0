-- Replaces the value that a lease publishes; its label and TTL stay. ARGV
-- after the head: "owner token ", value. Replies 1.
local key, id = KEYS[1], ARGV[5]
if not held_by(key, id, #id - 1) and not settle(key, id) then return not_held(key) end
local old = call('GET', key)
local label, from = string.match(old, '^(%d+):()', #id + 1)
call('SET', key, string.sub(old, 1, from + label - 1) .. ARGV[6], 'KEEPTTL')
if read_state() then changed(key) end
return 1
