-- What vote.lua and slowpath.lua share.
local TURN, QUARANTINED = 4, 6
-- What a done request replies; FREED has waiters in this node's queue.
local DONE, FREED = 1, 2
