package redis

import (
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestCounter(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	cfg := driver.Config{"address": s.Addr()}
	c, err := Kind.Counter(cfg)
	must(t, err)
	defer c.Close()
	call, end, err := Kind.Floor.Open(cfg)
	must(t, err)
	defer end()
	must(t, call(t.Context())) // connects
	read := func() float64 {
		s, err := c.Read(t.Context())
		must(t, err)
		return s.Run
	}
	read() // connects
	before := read()
	for range 7 {
		must(t, call(t.Context()))
	}
	if n := read() - before; n != 7 {
		t.Errorf("%v commands counted of 7", n)
	}
	if n := read(); n != before+7 {
		t.Errorf("a reading counts itself: %v, then %v", before+7, n)
	}
}

func TestPoolSize(t *testing.T) {
	for _, address := range []string{"127.0.0.1:1", "redis://127.0.0.1:1"} {
		c, err := Dial(driver.Config{"address": address})
		must(t, err)
		if n := c.(*goredis.Client).Options().PoolSize; n != poolConns {
			t.Errorf("%s: %d connections", address, n)
		}
		must(t, c.Close())
	}
}

// TestFromClients checks that fromClients does not count the commands that scripts run.
func TestFromClients(t *testing.T) {
	commands := map[string]string{
		"cmdstat_evalsha": "calls=5,usec=70,usec_per_call=14.00", "cmdstat_get": "calls=40,usec=9",
		"cmdstat_script|load": "calls=1,usec=3,usec_per_call=3.00", "cmdstat_ping": "calls=2,usec=1,usec_per_call=0.50",
	}
	if n, took := fromClients(commands); n != 8 || took != 74 {
		t.Errorf("5 scripts, 1 load and 2 pings: %v in %v us", n, took)
	}
}

// TestLeftKeys checks that LeftKeys lists a lock's keys, but no keys that exist once per prefix.
func TestLeftKeys(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	c := at(t, s)
	const prefix = "p*[x]:"
	must(t, c.Set(t.Context(), "another", "x", 0).Err())
	must(t, c.Set(t.Context(), prefix+controlKey, strings.Repeat("0", 64), 0).Err())
	must(t, c.Set(t.Context(), prefix+controlKey+"process", "1", 0).Err())
	must(t, c.ZAdd(t.Context(), prefix+withdrawnKey, goredis.Z{Score: 1, Member: "owner"}).Err())
	left := func() []string {
		t.Helper()
		keys, err := LeftKeys(t.Context(), s.Addr(), prefix)
		must(t, err)
		return keys
	}
	if left := left(); len(left) != 0 {
		t.Errorf("side keys and foreign keys are taken for leftovers: %q", left)
	}
	must(t, c.Set(t.Context(), prefix+"lock", "x", 0).Err())
	must(t, c.Set(t.Context(), prefix+"~q:{lock}", "\nowner process 500 0:", 0).Err())
	if left := left(); !slices.Equal(left, []string{prefix + "lock", prefix + "~q:{lock}"}) {
		t.Errorf("left: %q", left)
	}
	must(t, c.Append(t.Context(), prefix+controlKey, strings.Repeat("lock ", 20)).Err())
	if left := left(); len(left) != 2+1 {
		t.Errorf("a control string with something for each lock: %q", left)
	}
}
