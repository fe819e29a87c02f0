-- Enters an owner into the queue, or keeps its place, and is a sign of life of its
-- process. ARGV after the head: owner, entry, process, sign, for how many
-- milliseconds that stands. A free lock is granted to the first. Replies 0.
local key, owner = KEYS[1], ARGV[5]
local s, denied = read_state(side .. 'q:{' .. key .. '}', key)
if denied then return denied end
if tombstones_until > now and call('ZSCORE', tombstones, owner) then return {WITHDRAWN} end
call('SET', control .. ARGV[7], ARGV[8], 'PX', ARGV[9])
if last == 0 then write_state(1, 0) end -- this prefix has granted nothing yet
local text = enter(key, s[2] or nil, owner, ARGV[6])
if not s[3] and call('EXISTS', key) == 0 and grant_next(key, text) then changed(key) end
return 0
