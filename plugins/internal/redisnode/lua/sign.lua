-- Stores a sign of life of a process, neither replicated nor logged. ARGV after the head: process,
-- sign, milliseconds that it is valid. Replies 1 if the previous sign was still valid.
redis.set_repl(redis.REPL_NONE)
if call('SET', control .. ARGV[5], ARGV[6], 'XX', 'PX', ARGV[7]) then return 1 end
call('SET', control .. ARGV[5], ARGV[6], 'PX', ARGV[7])
return 0
