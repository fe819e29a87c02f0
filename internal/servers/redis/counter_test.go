package redis

import (
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

func TestCounter(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	cfg := driver.Config{"address": s.Addr()}
	c, err := Kind.Counter(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call, end, err := Kind.Floor.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := call(t.Context()); err != nil { // connects
		t.Fatal(err)
	}
	if _, err := c.Read(t.Context()); err != nil { // connects
		t.Fatal(err)
	}
	read := func() float64 {
		s, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Run
	}
	before := read()
	for range 7 {
		if err := call(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := read() - before; n != 7 {
		t.Errorf("%v commands counted of 7", n)
	}
	if n := read(); n != before+7 {
		t.Errorf("a reading counts itself: %v, then %v", before+7, n)
	}
}

// TestFromClients: what scripts run is not what clients sent.
func TestFromClients(t *testing.T) {
	commands := map[string]string{
		"cmdstat_evalsha": "calls=5,usec=70,usec_per_call=14.00", "cmdstat_get": "calls=40,usec=9",
		"cmdstat_script|load": "calls=1,usec=3,usec_per_call=3.00", "cmdstat_ping": "calls=2,usec=1,usec_per_call=0.50",
	}
	if n, took := fromClients(commands); n != 8 || took != 74 {
		t.Errorf("5 scripts, 1 load and 2 pings: %v in %v us", n, took)
	}
}
