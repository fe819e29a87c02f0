-- Replaces the lease of one owner by a grant to the next. ARGV after the head:
-- "owner token " of the present one, then owner, TTL in milliseconds and rest
-- of the next one. Replies its token.
local key, owner = KEYS[3], ARGV[4]
read_state()
if not held_by(key, ARGV[3], #ARGV[3] - 1) then return not_held(key) end
if is_barred(owner) then return {WITHDRAWN} end
local token = next_token()
call('SET', key, value_of(owner, token, ARGV[6]), 'PX', ARGV[5])
call('HSET', control, 'token', token)
if queued > now then leave(key, owner) end
changed(key)
return token
