-- A sign of life, not for replicas and logs. ARGV after the head: process, sign, for
-- how many milliseconds it stands. Replies 1 while the one before still stood.
redis.set_repl(redis.REPL_NONE)
if call('SET', control .. ARGV[5], ARGV[6], 'XX', 'PX', ARGV[7]) then return 1 end
call('SET', control .. ARGV[5], ARGV[6], 'PX', ARGV[7])
return 0
