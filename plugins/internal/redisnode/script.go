package redisnode

import (
	"context"
	"crypto/fips140"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua
var luaFiles embed.FS

// Lua returns a function that reads a Lua file, called by its name, in the folder lua of files.
func Lua(files embed.FS) func(name string) string {
	return func(name string) string {
		text, err := files.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		return string(text)
	}
}

var (
	lua           = Lua(luaFiles)
	operateScript = NewScript("", lua("queue"), "leave = leave, refuse = refuse, grant_next = grant_next",
		lua("lease")+lua("slowpath"), lua("operate"))
	waitScript     = wholeScript(lua("head") + "local " + known + "\n" + lua("queue") + lua("read") + lua("wait"))
	signScript     = wholeScript(lua("head") + lua("sign"))
	proclaimScript = newScript("proclaim")
	breakScript    = newScript("break")
	inspectScript  = newScript("inspect")
	probeScript    = newScript("rights", "probe")
)

// Rights is the text of a Lua function that tries every command that the scripts need.
var Rights = lua("rights")

// Script is a script's text and SHA-1 digest. A server that has the script finds it by the digest.
type Script struct{ Text, SHA string }

// newScript makes a script from Lua files. They can use the functions in queue.lua and lease.lua.
func newScript(files ...string) *Script {
	text := lua("lease")
	for _, name := range files {
		text += lua(name)
	}
	return QueueScript("", lua("queue"), text)
}

// QueueScript makes a script from three Lua texts. The body can use the functions of queue,
// lua/read.lua and lua/state.lua.
func QueueScript(head, queue, body string) *Script {
	return wholeScript(lua("head") + head + "local " + known + "\n" + queue + lua("read") + lua("state") + body)
}

// known lists the Lua variables that lua/read.lua sets.
const known = "now, last, tombstones_until, queued, observed"

// NewScript makes a script from five Lua texts. Most calls run only head and body, which define no
// functions. Other calls also run the Lua function library, which returns the result of slowPath.
// If its argument queue_only is true, library only returns queue functions that handoff lists.
func NewScript(head, queue, handoff, slowPath, body string) *Script {
	head = lua("head") + head
	return wholeScript("local function library(" + known + ", queue_only)\n" + head +
		queue + "if queue_only then return {" + handoff + "} end\n" +
		lua("read") + lua("state") + slowPath + "end\n" + head + body)
}

// wholeScript makes a script with its digest. The SHA-1 digest only names the script, so it is
// computed even if FIPS 140 is enforced.
func wholeScript(text string) *Script {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(text)) })
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

type invocation struct {
	script *Script
	keys   []string
	args   []any
	ops    []*op // the operations of a call of lua/operate.lua
	cmd    onceCmd
}

// onceCmd is a command that the client must never repeat by itself, because the
// server may have executed it. The client still follows the redirections of a
// Cluster, because a redirected command was not executed.
type onceCmd struct{ *goredis.Cmd }

func (onceCmd) NoRetry() bool { return true }

func (v *invocation) send(ctx context.Context, p processor, whole bool) {
	args := make([]any, 0, 3+len(v.keys)+len(v.args))
	if whole {
		args = append(args, "eval", v.script.Text, len(v.keys))
	} else {
		args = append(args, "evalsha", v.script.SHA, len(v.keys))
	}
	for i := range v.keys {
		if i == 0 { // a Cluster client finds the node by this key
			args = append(args, v.keys[0])
			continue
		}
		args = append(args, &v.keys[i])
	}
	v.cmd = onceCmd{goredis.NewCmd(ctx, append(args, v.args...)...)}
	_ = p.Process(ctx, v.cmd)
}

// unknownScript reports whether the server did not know the script, for example after a restart, a
// failover or SCRIPT FLUSH.
func (v *invocation) unknownScript() bool {
	return errors.Is(v.cmd.Err(), goredis.ErrNoScript) || goredis.HasErrorPrefix(v.cmd.Err(), "NOSCRIPT")
}

// processor is a client, a connection, or a pipeline.
type processor interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}
