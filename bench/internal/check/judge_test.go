package check

import (
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

// TestJudge starts from a [Play] that breaks no claim, and makes one change. Each change must break
// one claim, unless it also adds an excuse, such as a starved machine or a documented condition.
func TestJudge(t *testing.T) {
	failed := results.Call{Op: results.OpRelease, SentNs: 4990 * ms, BackNs: 5100 * ms, LimitNs: 9000 * ms, Served: true, Outcome: results.CallFailed}
	for _, tt := range []struct {
		name string
		do   func(p *Play, a, b *Host)
		want claim.Rule
	}{
		{"all is well", func(*Play, *Host, *Host) {}, ""},
		{"two holders", func(_ *Play, _, b *Host) { b.Holds[0].GrantedNs = 900 * ms }, claim.Overlap},
		{"two holders, documented", func(p *Play, _, b *Host) {
			b.Holds[0].GrantedNs, p.Made = 900*ms, []Made{{claim.DataLost, 899 * ms}}
		}, ""},
		{"two holders, before what is documented", func(p *Play, _, b *Host) {
			b.Holds[0].GrantedNs, p.Made = 900*ms, []Made{{claim.DataLost, 901 * ms}}
		}, claim.Overlap},
		{"a lease is lost", func(_ *Play, _, b *Host) { lose(b, 4000*ms, "unreachable") }, claim.Survives},
		{"a brief grant is lost", func(p *Play, _, b *Host) { loseFirst(p, b, 1900*ms, 1850*ms) }, ""},
		{"a long grant is lost soon", func(p *Play, _, b *Host) { loseFirst(p, b, 1400*ms, 2900*ms) }, claim.Survives},
		{"lost in an outage", func(_ *Play, _, b *Host) {
			lose(b, 4000*ms, "unreachable")
			b.Silent = []Span{{2500 * ms, 4000 * ms}}
		}, ""},
		{"lost on a starved machine", func(p *Play, _, b *Host) { lose(b, 4000*ms, "unreachable"); p.Starved = true }, ""},
		{"released under a function", func(p *Play, _, b *Host) { lose(b, 4000*ms, "released"); p.Names[0].Op = results.OpDo }, claim.Callback},
		{"learned too late", func(_ *Play, a, b *Host) { lose(a, 1200*ms, "expired"); a.Silent = []Span{{0, 1200 * ms}} }, claim.Signal},
		{"a closed client's holder sees it late", func(_ *Play, a, _ *Host) { lose(a, 1200*ms, "released"); a.Holds[0].ValidNs = 1009 * ms }, ""},
		{"a closed client's lease is valid for too long", func(_ *Play, a, _ *Host) { lose(a, 1200*ms, "released"); a.Holds[0].ValidNs = 1011 * ms }, claim.Overlap},
		{"granted late", func(_ *Play, _, b *Host) { b.Holds[0].GrantedNs, b.Calls[0].BackNs = 4000*ms, 4000*ms }, claim.Woken},
		{"never granted", func(p *Play, _, b *Host) {
			p.Names = append(p.Names, p.Names[0])
			b.Calls = append(b.Calls, results.Call{Op: results.OpLock, Name: 1, SentNs: 60 * ms, BackNs: 5060 * ms, LimitNs: 5060 * ms, Outcome: results.CallOver})
		}, claim.Woken},
		{"the token falls between two that waited", func(_ *Play, a, _ *Host) { inTurnTo(a, 7<<10) }, claim.Token},
		{"the token falls between two that waited, as data are lost", func(p *Play, a, _ *Host) {
			inTurnTo(a, 7<<10)
			p.Made, p.Events = []Made{{claim.DataLost, 100 * ms}}, []Span{{100 * ms, 101 * ms}}
		}, ""},
		{"the token falls between two that waited, long after data were lost", func(p *Play, a, b *Host) {
			inTurnTo(a, 7<<10)
			p.Made, p.Events = []Made{{claim.DataLost, -2000 * ms}}, []Span{{-2000 * ms, -1999 * ms}}
		}, claim.Token},
		{"a token repeats between two that waited, as data are lost", func(p *Play, a, b *Host) {
			inTurnTo(a, b.Holds[0].Token)
			p.Made, p.Events = []Made{{claim.DataLost, 100 * ms}}, []Span{{100 * ms, 101 * ms}}
		}, claim.Token},
		{"granted late while nothing was served", func(_ *Play, _, b *Host) {
			b.Holds[0].GrantedNs, b.Calls[0].BackNs, b.Unserved = 4000*ms, 4000*ms, []Span{{1000 * ms, 3500 * ms}}
		}, ""},
		{"a wait fails", func(_ *Play, _, b *Host) { b.Calls[0].Outcome = results.CallFailed }, claim.GaveUp},
		{"a wait fails that was never served", func(_ *Play, _, b *Host) { b.Calls[0].Outcome, b.Calls[0].Served = results.CallFailed, false }, ""},
		{"a release fails", func(_ *Play, _, b *Host) { b.Calls[0] = failed }, claim.GaveUp},
		{"a release fails on a starved machine", func(p *Play, _, b *Host) { b.Calls[0], p.Starved = failed, true }, ""},
		{"a release fails of what the store had just granted", func(p *Play, _, b *Host) {
			b.Calls[0], p.Names[0].FirstSpan, b.Holds[0].GrantedNs, b.Holds[0].UntilNs = failed, 500*time.Millisecond, 4900*ms, 5450*ms
		}, claim.GaveUp},
		{"a release fails of what the store had just granted, in an outage", func(p *Play, _, b *Host) {
			b.Calls[0], p.Names[0].FirstSpan, b.Holds[0].GrantedNs, b.Holds[0].UntilNs = failed, 500*time.Millisecond, 4900*ms, 5450*ms
			b.Silent = []Span{{4980 * ms, 5600 * ms}}
		}, ""},
		{"a call hangs", func(_ *Play, _, b *Host) { b.Calls[0].LimitNs, b.Calls[0].BackNs = 1000*ms, 2700*ms }, claim.Deadline},
		{"a host ends", func(_ *Play, a, _ *Host) { a.Alive = false }, claim.Crash},
		{"a host ends before an event kills it", func(_ *Play, a, _ *Host) { a.Alive, a.Crashed, a.Ended = false, true, 5000*ms }, claim.Crash},
		{"something is left", func(p *Play, _, _ *Host) { p.Left = []string{"a key"} }, claim.Leaked},
		{"a lock stays", func(p *Play, _, _ *Host) { p.Probes = []Probe{{Took: 10 * time.Second}} }, claim.Orphaned},
	} {
		released, next := lease(0, 1, 0, 10, 990, 0, 1000), lease(1, 2, 50, 1010, 4990, 0, 5000)
		p := Play{Backend: "redis", Terms: claim.TermsOf("redis", nil), Fencing: "durable", Stopped: 6000 * ms, Names: []Name{{results.OpLock, 0, claim.Setting{TTL: 2 * time.Second}}}}
		p.Hosts = []Host{{Alive: true, Seen: results.Seen{Holds: []results.Hold{released}}}, {Alive: true, Seen: results.Seen{
			Holds: []results.Hold{next}, Calls: []results.Call{{Op: results.OpLock, SentNs: 50 * ms, BackNs: 1010 * ms, LimitNs: 5000 * ms, Served: true}},
		}}}
		tt.do(&p, &p.Hosts[0], &p.Hosts[1])
		v := Judge(p).Violations
		if tt.want == "" && len(v) > 0 || tt.want != "" && (len(v) != 1 || v[0].Rule != tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, v, tt.want)
		}
	}
}

// inTurnTo sets the token of a host's first hold, and delays its grant beyond the next request.
func inTurnTo(h *Host, token uint64) { h.Holds[0].Token, h.Holds[0].GrantedNs = token, 60*ms }

func loseFirst(p *Play, h *Host, at, until int64) {
	lose(h, at, "unreachable")
	p.Names[0].FirstSpan, h.Holds[0].UntilNs = 500*time.Millisecond, until
}

func lose(h *Host, at int64, cause string) {
	l := &h.Holds[0]
	l.ValidNs, l.DoneNs, l.Cause, l.ReleaseNs, l.ReleasedNs = min(l.ValidNs, at), at, cause, 0, 0
}
