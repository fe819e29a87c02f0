-- Puts an owner into the queue, or keeps its place there. The call is also a sign of life of the
-- owner's process. ARGV after the head: owner, entry, process, sign, milliseconds that the sign is
-- valid. A free lock is granted to the first waiter. Replies the remaining milliseconds of the
-- holder's lease, or 0 when there is no holder or the lease has no end.
local key, owner = KEYS[1], ARGV[5]
local s, denied = read_state(side .. 'q:{' .. key .. '}')
if denied then return denied end
if tombstones_until > now and call('ZSCORE', tombstones, owner) then return {WITHDRAWN} end
call('SET', control .. ARGV[7], ARGV[8], 'PX', ARGV[9])
if last == 0 then call('SETRANGE', control, 0, format('%016.0f', 0)) end -- this prefix has granted nothing yet
local text, left = enter(key, s[2] or nil, owner, ARGV[6]), call('PTTL', key)
if left == -2 and grant_next(key, text, nil, last) and observed > now then try('PUBLISH', side .. 'o:' .. key, '') end
return math.max(left, 0)
