-- First lines of every script. KEYS has the lock keys, and in Cluster, for
-- acquires and waits, the control key after them. ARGV: control, tombstones,
-- side, cluster, then the script's own.
--
-- Note: control, tombstones and the queue of a lock are not declared in KEYS,
-- although they share its slot. While a slot moves, Redis refuses a script
-- with TRYAGAIN unless all declared keys are on one node, so that a renewal
-- would be refused until the move has ended. An acquire has to be: on the wrong
-- node it would begin a second control string. A release grants nothing there.
--
-- The control string has what one prefix (in Cluster: one slot of a prefix)
-- keeps besides its lock keys, in fields of 16 digits, each written alone:
--   1   the last token that was minted
--   17  until when an owner may stand in tombstones
--   33  until when somebody may wait in a queue
--   49  until when somebody may observe
-- The last three keep the ordinary acquire and release from looking at keys
-- that are hardly ever there. All instants are microseconds by TIME.
--
-- A number must reach Redis as a number or through %.0f: tostring and ".."
-- would cut a token to 1.7951709358938e+15.
local call, try, format = redis.call, redis.pcall, string.format
local control, tombstones, side, cluster = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local HELD, NOT_HELD, WITHDRAWN, REFUSED = 1, 2, 3, 5
