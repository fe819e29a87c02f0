package redlock

import (
	_ "embed"

	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

//go:embed lua/head.lua
var headLua string

//go:embed lua/queue.lua
var queueLua string

//go:embed lua/wait.lua
var waitLua string

//go:embed lua/slowpath.lua
var slowPathLua string

//go:embed lua/vote.lua
var voteLua string

//go:embed lua/admit.lua
var admitLua string

var (
	voteScript = redisnode.NewScript(headLua, queueLua, "refuse = refuse", redisnode.Rights+slowPathLua, voteLua)
	waitScript = redisnode.QueueScript(headLua, queueLua, waitLua)
)
