package redlock

import (
	_ "embed"

	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

//go:embed lua/vote.lua
var voteLua string

//go:embed lua/quick.lua
var quickLua string

//go:embed lua/admit.lua
var admitLua string

var voteScript = redisnode.NewScript(voteLua, quickLua)
