package redisnode

import (
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// TestRefuseOnRedis6 checks that the Lua function refuse does not mistake an error for the queue's
// text. In scripts on Redis 6, both are strings.
func TestRefuseOnRedis6(t *testing.T) {
	s, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	raises := strings.Replace(newScript().Text, "redis.call,", `function(...)
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then error(reply.err) end
  return reply
end,`, 1)
	refuses := wholeScript(raises + "read_state()\nreturn refuse(KEYS[1], 'o', call('GET', side .. 'q:{lock}'))\n")
	all := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	defer all.Close()
	ctx := t.Context()
	for _, cmd := range [][]any{
		{"set", "lock", "other 1 0"}, {"set", "~q:{lock}", "\no process 500 0:"},
		{"acl", "setuser", "less", "on", "nopass", "~*", "+@all", "-pexpire"},
	} {
		if err := all.Do(ctx, cmd...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for keeps, user := range []string{"less", "default"} {
		c := all.Conn()
		defer c.Close()
		if err := c.AuthACL(ctx, user, "any").Err(); err != nil {
			t.Fatal(err)
		}
		reply, err := c.Eval(ctx, refuses.Text, []string{"lock"}, Keys{}.Head("lock")...).Slice()
		if f := FieldsOf(reply); err != nil || f.Number(0) != CodeHeld || f.Number(3) != int64(keeps) {
			t.Errorf("%s: %v, %v", user, reply, err)
		}
	}
}
