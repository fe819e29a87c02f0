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

// lua is the text of a file.
func lua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	operateScript  = NewScript("", lua("slowpath"), lua("operate"))
	waitScript     = wholeScript(shared() + lua("wait"))
	proclaimScript = newScript("proclaim")
	breakScript    = newScript("break")
	inspectScript  = newScript("inspect")
	probeScript    = wholeScript(shared() + lua("state") + Rights + lua("probe"))
)

// Rights is the function use_all for a slow path.
var Rights = lua("rights")

// Script is the text of a script and the digest under which the server has it.
type Script struct{ Text, SHA string }

func newScript(name string) *Script { return wholeScript(shared() + lua("state") + lua(name)) }

// shared are the functions that every whole script has.
func shared() string { return lua("head") + "local " + known + "\n" + lua("queue") + lua("read") }

// known is what lua/read.lua reads.
const known = "now, last, tombstones_until, queued, observed"

// queueOnly ends the function library where the rest is not asked for.
const queueOnly = "if of_queue then return {leave = leave, refuse = refuse, next_turn = next_turn} end\n"

// NewScript makes a script whose usual way makes no functions: what slowPath returns is
// made by the function library, of what is known of the state; with of_queue the
// few that a handoff needs. Both parts may use head.
func NewScript(head, slowPath, body string) *Script {
	head = lua("head") + head
	return wholeScript("local function library(" + known + ", of_queue)\n" + head + lua("queue") + queueOnly +
		lua("read") + lua("state") + slowPath + "end\n" + head + body)
}

// wholeScript makes a script with its name. The server names scripts by SHA-1, which
// protects nothing here, so it is used where only FIPS 140 is allowed, too.
func wholeScript(text string) *Script {
	var sum [sha1.Size]byte
	fips140.WithoutEnforcement(func() { sum = sha1.Sum([]byte(text)) })
	return &Script{Text: text, SHA: hex.EncodeToString(sum[:])}
}

// invocation is one call of a script.
type invocation struct {
	script *Script
	keys   []string
	args   []any
	cmd    onceCmd
}

// onceCmd is a command that the client must never send again by itself: its
// first sending may have been executed. Redirections of a Cluster are followed,
// because a redirected command was not executed.
type onceCmd struct{ *goredis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// send makes the command, by the script's digest or with its whole text.
func (v *invocation) send(ctx context.Context, p processor, whole bool) {
	args := make([]any, 0, 3+len(v.keys)+len(v.args))
	if whole {
		args = append(args, "eval", v.script.Text, len(v.keys))
	} else {
		args = append(args, "evalsha", v.script.SHA, len(v.keys))
	}
	for i := range v.keys {
		if i == 0 { // by which a Cluster client finds the node
			args = append(args, v.keys[0])
			continue
		}
		args = append(args, &v.keys[i])
	}
	v.cmd = onceCmd{goredis.NewCmd(ctx, append(args, v.args...)...)}
	_ = p.Process(ctx, v.cmd)
}

// unknownScript reports whether the server did not know the script yet, after
// a start, a failover or SCRIPT FLUSH.
func (v *invocation) unknownScript() bool {
	return errors.Is(v.cmd.Err(), goredis.ErrNoScript) || goredis.HasErrorPrefix(v.cmd.Err(), "NOSCRIPT")
}

// processor is a client, a connection, or a pipeline.
type processor interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}
