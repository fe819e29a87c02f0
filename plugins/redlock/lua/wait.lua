-- Puts an owner into the queue, or keeps its place there. ARGV is that of wait.lua in redisnode; of
-- it, only the owner and the process, whose channel it listens on, matter. Replies -1 if the lock is
-- free and it is this owner's turn, and 0 if the owner must wait.
local key, owner, channel = KEYS[1], ARGV[5], ARGV[7]
local s, denied = read_state(side .. 'l:{' .. key .. '}', key)
if denied then return denied end
if tombstones_until > now and call('ZSCORE', tombstones, owner) then return {WITHDRAWN} end
local held = s[3] or call('EXISTS', key) == 1
local text = enter(key, s[2], owner, channel, held)
if not held and next_turn(key, text, owner) == owner then return -1 end
return 0
