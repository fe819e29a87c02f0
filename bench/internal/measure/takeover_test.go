package measure

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/host"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// redisServer starts a server that loses no data when a test restarts it.
func redisServer(t *testing.T) *servers.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), &redisserver.Options{AppendFsync: redisserver.FsyncAlways})
	servers.Keep(t, "redis", s, err)
	return s
}

func takeoverInput(t *testing.T, s *servers.Server, mode string) Input {
	path := plugintest.Build(t, "github.com/lockbench/lockbench/plugins/redis/lockplugin-redis")
	return Input{
		Workload: Workload{Mode: mode, Hosts: 2, Clients: 3}, Clock: proc.NewClock(), TTL: time.Second, Harms: 1, Seed: 1,
		Host:  host.Spec{Backend: "redis", Path: path, Config: driver.Config{"address": s.Addr()}},
		Names: []string{mode + "/a", mode + "/b", mode + "/c"}, Measure: 20 * time.Millisecond, Server: s,
	}
}

func TestTakeoverModes(t *testing.T) {
	s := redisServer(t)
	for _, m := range Modes() {
		t.Run(m, func(t *testing.T) {
			in := takeoverInput(t, s, m)
			c, err := takeover.Run(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if len(c.Findings) > 0 || c.Cycles == 0 {
				t.Errorf("%d takeovers, findings %v", c.Cycles, c.Findings)
			}
			checker := check.New()
			checker.Add(results.Section{CellName: results.CellName{Backend: "redis"}, Kind: results.KindPlugin, Fencing: "durable", Names: in.Names}, c.Attempts)
			if v := checker.Verdict(); v.Unsafe() > 0 || v.Granted() < len(in.Names) {
				t.Errorf("%+v", v)
			}
			took := c.Latencies["takeover"]
			mode, _ := modeByName(m)
			if !mode.server && len(took) != c.Cycles {
				t.Errorf("%d times of %d takeovers", len(took), c.Cycles)
			}
			// Judge by the end of each lease, because the expected band assumes punctual renewals.
			if mode.expires && (len(c.Latencies["overdue"]) != len(took) || c.Values["early"] != 0 || c.Values["band-low-ns/takeover"] == 0) {
				t.Errorf("took %v, of which %v are judged: %v", took, c.Latencies["overdue"], c.Values)
			}
			if stale, ok := c.Values["stale-writes"]; ok != (m == "freeze") || stale > 0 {
				t.Errorf("stale writes: %v, %v", stale, ok)
			}
			for _, a := range c.Attempts {
				if a.Outcome == results.Granted && a.Done <= a.Answered {
					t.Errorf("nothing is known about the end of %+v", a)
				}
			}
		})
	}
}

func TestJudge(t *testing.T) {
	const ms = int64(time.Millisecond)
	in := Input{TTL: 900 * time.Millisecond, Names: []string{"jobs"}}
	m, _ := modeByName("kill-machine")
	for _, tt := range []struct {
		name         string
		harmed       int64 // time of the fault; a renewal was sent at 0 and answered at 1 ms
		taken        int64
		early, late  float64
		overdueAbout int64
	}{
		{"in time", 100 * ms, 905 * ms, 0, 0, 4 * ms},
		{"by the rounding of the store", 100 * ms, 899 * ms, 0, 0, 0},
		{"before the end", 100 * ms, 890 * ms, 1, 0, 0},
		{"much later", 100 * ms, 960 * ms, 0, 1, 59 * ms},
		{"a renewal may have been under way", 290 * ms, 1190 * ms, 0, 0, 0},
	} {
		s := newElection(in, m)
		s.judge(&incident{from: tt.harmed, until: tt.harmed}, results.Hold{SentNs: 1, GrantedNs: 1 * ms}, tt.taken)
		c := s.cell
		if c.Values["early"] != tt.early || c.Values["late"] != tt.late || c.Latencies[overdue][0] != tt.overdueAbout {
			t.Errorf("%s: %+v", tt.name, c)
		}
	}
}

func TestNotPossible(t *testing.T) {
	for _, tt := range []struct {
		mode, address string
		server        *servers.Server
		want          string
	}{
		{"kill-host", "rediss://h:1", nil, ""},
		{"server-restart", "h:1", nil, "and no others"},
		{"server-restart", "h:1", &servers.Server{}, ""},
		{"partition", "h:1", nil, ""},
		{"partition", "rediss://h:1", nil, "proxies"},
		{"kill-machine", "h", nil, "no host and port"},
	} {
		in := Input{Workload: Workload{Mode: tt.mode}, Server: tt.server, Host: host.Spec{Config: driver.Config{"address": tt.address}}}
		if got := NotPossible(in); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s at %s: %q, want %q", tt.mode, tt.address, got, tt.want)
		}
	}
	_, err := takeover.Run(t.Context(), Input{Workload: Workload{Mode: "nap"}})
	if err == nil || errors.Is(err, ErrNothingDone) {
		t.Errorf("a mode that does not exist: %v", err)
	}
}
