-- Replaces the lease of one owner by a grant to the next. ARGV after the head:
-- "owner token " of the present one, then owner, TTL in milliseconds and rest
-- of the next one. Replies its token.
--
-- The token is written first: one that is not used does no harm.
local key, owner = KEYS[1], ARGV[6]
local denied = read_state()
if denied then return denied end
if not held_by(key, ARGV[5], #ARGV[5] - 1) then return not_held(key) end
if is_barred(owner) then return {WITHDRAWN} end
local token = next_token()
call('HSET', control, 'token', token)
call('SET', key, value_of(owner, token, ARGV[8]), 'PX', ARGV[7])
if queued > now then guarded(leave, key, owner) end
changed(key)
return token
