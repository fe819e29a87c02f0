-- First lines of every script. KEYS has the lock keys. In a Cluster, acquires and waits add the
-- control key. ARGV: control, tombstones, side, cluster, then the script's own arguments.
--
-- Note: control, tombstones and the queue of a lock are not declared in KEYS,
-- although they share its slot. While a slot moves, Redis refuses a script with
-- TRYAGAIN unless all declared keys are on one node, so renewals would fail
-- until the move has ended. An acquire must fail during a move: on the wrong node it would begin a
-- second control string. A release on the wrong node grants nothing.
--
-- The control string has what one prefix (in a Cluster: one slot of a prefix) keeps
-- besides its lock keys. Its fields have 16 digits and are written one by one:
--   1   the last token that was minted
--   17  until when tombstones may contain an owner
--   33  until when a queue may have a waiter
--   49  until when a lock may have an observer
-- Because of the last three fields, an ordinary acquire or release need not read keys that hardly
-- ever exist. All instants are microseconds as TIME returns them.
--
-- A number must reach Redis as a number or through %.0f: tostring and ".."
-- would cut a token to 1.7951709358938e+15.
local call, try, format = redis.call, redis.pcall, string.format
local control, tombstones, side, cluster = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local HELD, NOT_HELD, WITHDRAWN, REFUSED = 1, 2, 3, 5
