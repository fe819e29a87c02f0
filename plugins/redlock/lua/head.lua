-- Codes that vote.lua and slowpath.lua share.
local TURN, QUARANTINED = 4, 6
-- The replies to a request that was done. FREED also says that this node's queue has waiters.
local DONE, FREED = 1, 2
