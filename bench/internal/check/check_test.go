package check

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/claim"
)

var section = results.Section{
	CellName: results.CellName{Backend: "redis", Scenario: "acquire"}, Kind: results.KindPlugin, Fencing: "durable", Run: 1, Names: []string{"a", "b"},
}

func held(client int32, name int32, asked, answered, ended int64, token uint64) results.Attempt {
	return results.Attempt{
		Client: client, Name: name, Asked: asked, Answered: answered, Ended: ended, Done: ended + 1,
		Token: token, Outcome: results.Granted, End: results.EndReleased,
	}
}

func open(a results.Attempt) results.Attempt {
	a.End, a.Ended, a.Done = results.EndOpen, 0, 0
	return a
}

func TestPlanted(t *testing.T) {
	none := section
	none.Fencing = "none"
	for _, tt := range []struct {
		name             string
		section          results.Section
		attempts         []results.Attempt
		overlaps, tokens int
	}{
		{"granted as the release is sent", section, []results.Attempt{held(0, 0, 0, 10, 20, 1), held(1, 0, 5, 20, 40, 2)}, 0, 0},
		{"other names", section, []results.Attempt{held(0, 0, 0, 10, 20, 1), held(1, 1, 0, 10, 20, 1)}, 0, 0},
		{"long holder, third one overlaps too", section, []results.Attempt{
			held(0, 0, 0, 10, 100, 1), held(1, 0, 11, 19, 40, 2), held(2, 0, 50, 60, 70, 3)}, 2, 0},
		{"nothing is known of an open end", section, []results.Attempt{open(held(0, 0, 0, 10, 0, 1)), held(1, 0, 15, 19, 40, 2)}, 0, 0},
		{"granted within a lease", section, []results.Attempt{held(0, 0, 0, 10, 100, 1), open(held(1, 0, 15, 19, 0, 2))}, 1, 0},
		{"a lost grant is handed over after a later one", section, []results.Attempt{
			held(0, 0, 0, 10, 20, 7<<10), held(1, 0, 21, 30, 40, 8<<10), held(0, 0, 41, 50, 60, 7<<10+1),
		}, 0, 0},
		{"token falls in a hand-over", section, []results.Attempt{
			held(0, 0, 0, 10, 20, 7<<10), held(0, 0, 21, 30, 40, 7<<10+2), held(0, 0, 41, 50, 60, 7<<10+1),
		}, 0, 1},
		{"token falls below that of a hand-over", section, []results.Attempt{
			held(0, 0, 0, 10, 20, 7<<10), held(0, 0, 21, 30, 40, 7<<10+2), held(1, 0, 41, 50, 60, 6<<10),
		}, 0, 1},
		{"token falls between two that waited", section, []results.Attempt{held(0, 0, 0, 10, 20, 8<<10), held(1, 0, 5, 30, 40, 7<<10)}, 0, 1},
		{"token falls between two that waited, in a hand-over", section, []results.Attempt{
			held(0, 0, 0, 10, 20, 7<<10), held(0, 0, 5, 30, 40, 7<<10+2), held(0, 0, 5, 50, 60, 7<<10+1),
		}, 0, 1},
		{"token zero where tokens are claimed", section, []results.Attempt{held(0, 0, 0, 10, 20, 0), held(1, 0, 21, 30, 40, 0)}, 0, 1},
		{"no tokens claimed", none, []results.Attempt{held(0, 0, 0, 10, 20, 0), held(1, 0, 21, 30, 40, 0)}, 0, 0},
		{"no tokens claimed, two holders", none, []results.Attempt{held(0, 0, 0, 10, 20, 0), held(1, 0, 11, 19, 40, 0)}, 1, 0},
		{"refusals hold nothing", section, []results.Attempt{
			held(0, 0, 0, 10, 20, 1), {Client: 1, Asked: 11, Answered: 12, Outcome: results.Refused}}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := New()
			c.Add(tt.section, tt.attempts)
			v := c.Verdict()
			if got := v.Subjects[0]; got.Overlaps != tt.overlaps || got.Tokens != tt.tokens {
				t.Errorf("overlaps %d, tokens %d; want %d, %d: %v", got.Overlaps, got.Tokens, tt.overlaps, tt.tokens, v.Violations)
			}
			if got, want := v.Unsafe(), tt.overlaps+tt.tokens; got != want {
				t.Errorf("Unsafe = %d, want %d", got, want)
			}
		})
	}
}

// TestViolationsAcrossSections checks that the Checker finds and describes a violation between
// leases of two measurements. It must show a violation of a baseline, but not count it as unsafe.
func TestViolationsAcrossSections(t *testing.T) {
	for _, kind := range []results.Kind{results.KindPlugin, results.KindBaseline} {
		s, c := section, New()
		s.Kind = kind
		c.Add(s, []results.Attempt{held(3, 1, 0, 10_000, 100_000, 47)})
		c.Add(s, []results.Attempt{held(5, 1, 50_000, 60_000, 70_000, 45)})
		v := c.Verdict()
		if got := v.Subjects[0]; got.Overlaps != 1 || got.Tokens != 1 || (v.Unsafe() == 2) != (kind == results.KindPlugin) {
			t.Fatalf("%+v, want one of each", v)
		}
		text := v.Violations[1].String()
		for _, want := range []string{"overlap", "redis", `"b"`, "acquire run 1", "caller 3", "caller 5", "10µs", "60µs", "token 47", "token 45"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not say %s", text, want)
			}
		}
	}
}

// TestAgainstPairs judges random histories with the checker, and by comparing all pairs of holds.
// Both ways must agree on overlaps and on tokens.
func TestAgainstPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var unsafe int
	for range 3000 {
		var attempts []results.Attempt
		for range 2 + r.IntN(6) {
			asked := r.Int64N(60)
			answered := asked + 1 + r.Int64N(10)
			attempts = append(attempts, held(int32(len(attempts)), 0, asked, answered, answered+1+r.Int64N(10), 1+r.Uint64N(12)))
		}
		c := New()
		c.Add(section, attempts)
		got := c.Verdict().Subjects[0]
		overlap, token := pairs(attempts)
		if (got.Overlaps > 0) != overlap || (got.Tokens > 0) != token {
			t.Fatalf("found %+v, pairs say overlap %v token %v: %+v", got, overlap, token, attempts)
		}
		if overlap || token {
			unsafe++
		}
	}
	if unsafe == 0 || unsafe == 3000 {
		t.Errorf("%d of 3000 histories are unsafe: no test of anything", unsafe)
	}
}

func pairs(attempts []results.Attempt) (overlap, token bool) {
	for i, a := range attempts {
		for j, b := range attempts {
			if i == j {
				continue
			}
			overlap = overlap || a.Answered < b.Ended && b.Answered < a.Ended
			token = token || a.Token == b.Token || (a.Answered <= b.Asked || a.Ended < b.Answered) && b.Token <= a.Token
		}
	}
	return overlap, token
}

// TestFolder checks that Dir judges a folder by the content of its files, even if they were edited.
// If a file was cut short, Dir judges the part that is left.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	f, err := results.Create(dir, results.Manifest{Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	r := round("freeze-host", lease(0, 1, 0, 2, 990, 4001, 0, 700), lease(1, 2, 50, 2705, 4300, 0, 5000))
	r.Halts = []results.Halt{{Host: 0, Why: results.HaltFrozen, From: 1000 * ms, To: 4000 * ms}}
	err = errors.Join(
		f.Add(results.Cell{Section: section, Attempts: []results.Attempt{held(0, 0, 0, 10, 20, 7), held(1, 0, 21, 30, 40, 7)}}),
		f.AddRound(r), f.Close(results.StateDone))
	if err != nil {
		t.Fatal(err)
	}
	rounds, events := filepath.Join(dir, results.RoundsFile), filepath.Join(dir, results.EventsFile)
	text, err := os.ReadFile(rounds)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(events)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name           string
		rounds, events string
		unsafe         int
		class          Class
		truncated      bool
	}{
		{"as it was written", string(text), string(binary), 1, ClassHeld, false},
		{"edited", strings.Replace(string(text), `"valid_ns":990000000`, `"valid_ns":3000000000`, 1), string(binary), 2, ClassBroken, false},
		{"a cut line", string(text) + string(text[:len(text)/2]), string(binary), 1, ClassHeld, true},
		{"cut events", string(text), string(binary[:len(binary)-3]), 1, ClassHeld, true},
	} {
		if err := errors.Join(os.WriteFile(rounds, []byte(tt.rounds), 0o644), os.WriteFile(events, []byte(tt.events), 0o644)); err != nil {
			t.Fatal(err)
		}
		v, err := Dir(dir)
		if err != nil || v.Unsafe() != tt.unsafe || v.Granted() != 4 || len(v.Cells) != 1 || v.Cells[0].Class != tt.class || (v.Truncated != nil) != tt.truncated {
			t.Errorf("%s: %+v, %v", tt.name, v, err)
		}
	}
}

const ms = int64(time.Millisecond)

// lease returns a hold of lock 0 by a host, with times in milliseconds. The host learned of a loss
// at t=done, and began to release the lock at t=release. For these two times, 0 means never.
func lease(host int, token uint64, asked, granted, valid, done, release int64, renewals ...int64) results.Hold {
	l := results.Hold{
		Host: host, Token: token, AskedNs: asked * ms, GrantedNs: granted * ms, ValidNs: valid * ms,
		DoneNs: done * ms, ReleaseNs: release * ms,
	}
	if release > 0 {
		l.ReleasedNs = (release + 2) * ms
	}
	for _, sent := range renewals {
		l.Renewals = append(l.Renewals, [2]int64{sent * ms, (sent + 1) * ms})
	}
	return l
}

func round(fault string, leases ...results.Hold) results.Round {
	r := results.Round{
		Backend: "redis", Kind: results.KindPlugin, Fencing: "durable", Fault: fault, Round: 1, Names: 1, Hits: 1,
		TTLms: 2000, InjectedNs: 1000 * ms, HealedNs: 4000 * ms, Seen: results.Seen{Holds: leases},
	}
	if fault == "clock-forward" {
		r.Conditions = []claim.Condition{claim.ClockForward}
	}
	return r
}

func write(token uint64, guarded, refused bool, sent int64) results.Write {
	return results.Write{Token: token, Guarded: guarded, Refused: refused, SentNs: sent * ms, DoneNs: (sent + 1) * ms}
}

func TestCells(t *testing.T) {
	frozen := []results.Halt{{Host: 0, Why: results.HaltFrozen, From: 1000 * ms, To: 4000 * ms}}
	killed := []results.Halt{{Host: 0, Why: results.HaltKilled, From: 1000 * ms}}
	for _, tt := range []struct {
		name   string
		round  results.Round
		halts  []results.Halt
		writes []results.Write
		class  Class
		rule   claim.Rule // the rule of one of the violations
	}{
		{"released, then granted", round("latency", lease(0, 1, 0, 2, 90, 0, 100), lease(1, 2, 50, 101, 190, 0, 200)), nil, nil, ClassHeld, ""},
		{"expired while frozen", round("freeze-host", lease(0, 1, 0, 2, 990, 4001, 0, 700), lease(1, 2, 50, 2705, 4300, 0, 5000)), frozen, nil, ClassHeld, ""},
		{"granted before it expires, while frozen", round("freeze-host", lease(0, 1, 0, 2, 990, 4001, 0, 700), lease(1, 2, 50, 2500, 4300, 0, 5000)), frozen, nil, ClassBroken, claim.Linear},
		{"valid after the next grant", round("freeze-host", lease(0, 1, 0, 2, 4001, 4002, 0, 700), lease(1, 2, 50, 2705, 4300, 0, 5000)), frozen, nil, ClassBroken, claim.Overlap},
		{"a renewal after the next grant", round("freeze-host", lease(0, 1, 0, 2, 990, 4003, 0, 700, 4001), lease(1, 2, 50, 2705, 4300, 0, 5000)), frozen, nil, ClassBroken, claim.Linear},
		{"the token falls", round("kill-host", lease(0, 7, 0, 2, 2, 0, 0), lease(1, 6, 50, 1010, 1500, 0, 1600)), killed, nil, ClassBroken, claim.Token},
		{"released for a killed host", round("kill-host", lease(0, 1, 0, 2, 2, 0, 0), lease(1, 2, 50, 1010, 1500, 0, 1600)), killed, nil, ClassHeld, ""},
		{"told too late", round("partition-holder", lease(0, 1, 0, 2, 1980, 2100, 0), lease(1, 2, 50, 2003, 3000, 0, 3100)), nil, nil, ClassBroken, claim.Signal},
		{"not told, but it had no time to run", round("partition-holder", lease(0, 1, 0, 2, 1980, 2100, 0), lease(1, 2, 50, 2003, 3000, 0, 3100)),
			[]results.Halt{{Host: 0, Why: results.HaltStarved, From: 1990 * ms, To: 2099 * ms}}, nil, ClassHeld, ""},
		{"a late write is let through", round("freeze-host", lease(0, 1, 0, 2, 990, 4001, 0, 700), lease(1, 2, 50, 2705, 4300, 0, 5000)), frozen,
			[]results.Write{write(1, true, false, 10), write(2, true, false, 2710), write(1, true, false, 4001)}, ClassBroken, claim.Effect},
		{"a late write is refused", round("freeze-host", lease(0, 1, 0, 2, 990, 4001, 0, 700), lease(1, 2, 50, 2705, 4300, 0, 5000)), frozen,
			[]results.Write{write(1, true, false, 10), write(2, true, false, 2710), write(1, true, true, 4001)}, ClassHeld, ""},
		{"documented, and the tokens rise", round("clock-forward", lease(0, 1, 0, 2, 1200, 1201, 0), lease(1, 2, 1000, 1005, 1500, 0, 1600)), nil, nil, ClassToken, claim.Overlap},
		{"documented, but the token falls", round("clock-forward", lease(0, 3, 0, 2, 1200, 1201, 0), lease(1, 2, 1000, 1005, 1500, 0, 1600)), nil, nil, ClassBroken, claim.Token},
		{"documented, but the old holder is renewed", round("clock-forward", lease(0, 1, 0, 2, 1200, 1300, 0, 1200), lease(1, 2, 1000, 1005, 1500, 0, 1600)), nil, nil, ClassBroken, claim.Overlap},
		{"nothing was granted", round("latency"), nil, nil, ClassInvalid, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.round.Halts, tt.round.Writes = tt.halts, tt.writes
			c := Cells([]results.Round{tt.round})[0]
			if c.Class != tt.class || c.Unsafe() != (tt.class == ClassBroken) {
				t.Errorf("%+v, want %q", c, tt.class)
			}
			if tt.rule == "" && len(c.Violations) > 0 || tt.rule != "" && !slices.ContainsFunc(c.Violations, func(v string) bool { return strings.HasPrefix(v, string(tt.rule)+": ") }) {
				t.Errorf("violations %q, want one of %q", c.Violations, tt.rule)
			}
		})
	}
}

func TestCellCounts(t *testing.T) {
	r := round("black-hole", lease(0, 1, 0, 2, 1900, 1978, 0), lease(1, 2, 50, 2003, 4300, 0, 4400))
	r.Keeps = true
	r.Writes = []results.Write{
		write(1, true, false, 10), write(1, false, false, 12), write(2, true, false, 2010), write(2, false, false, 2012),
		write(1, true, true, 2100), write(1, false, false, 2102),
	}
	c := Cells([]results.Round{r, r})[0]
	if c.Rounds != 2 || c.Grants != 4 || c.FalseLosses != 2 || c.Margins != 2 || c.Margin != 25*ms || c.Unavailable != 1003*ms {
		t.Errorf("%+v", c)
	}
	if c.StaleBare != 2 || c.StaleGuarded != 0 || c.Refused != 2 {
		t.Errorf("late writes: %d without a guard, %d with one, %d refused", c.StaleBare, c.StaleGuarded, c.Refused)
	}
}

func TestAvailabilityIsJudged(t *testing.T) {
	back := func(leases ...results.Hold) results.Round {
		r := round("demotion", leases...)
		r.Keeps, r.TTLms, r.BackNs = true, 10_000, 2500*ms
		return r
	}
	unanswered := lease(0, 1, 0, 2, 2890, 0, 2900)
	unanswered.ReleasedNs = 0
	for _, tt := range []struct {
		name     string
		round    results.Round
		starved  int64 // host 1 does not run from this time until 3500 ms; 0 if it always runs
		short    bool
		unserved int
	}{
		{"kept, and released in the outage", back(lease(0, 1, 0, 2, 1290, 0, 1300), lease(1, 2, 50, 2600, 3000, 0, 3100)), 0, false, 0},
		{"lost", back(lease(0, 1, 0, 2, 1290, 2400, 0), lease(1, 2, 50, 2600, 3000, 0, 3100)), 0, false, 1},
		{"lost, and short", back(lease(0, 1, 0, 2, 1290, 2400, 0), lease(1, 2, 50, 2600, 3000, 0, 3100)), 0, true, 0},
		{"granted in the outage and lost", back(lease(0, 1, 1200, 1210, 1290, 2700, 0)), 0, false, 0},
		{"a free lock is granted late", back(lease(1, 2, 2550, 4100, 4300, 0, 4400)), 0, false, 1},
		{"granted late after its release", back(lease(0, 1, 0, 2, 2890, 0, 2900), lease(1, 2, 50, 4500, 4600, 0, 4700)), 0, false, 1},
		{"nobody knows when it was free", back(unanswered, lease(1, 2, 50, 4500, 4600, 0, 4700)), 0, false, 0},
		{"a release is never answered", back(unanswered, lease(1, 2, 50, 6500, 6600, 0, 6700)), 0, false, 1},
		{"granted late to a host that could not run", back(lease(1, 2, 2550, 4100, 4300, 0, 4400)), 3000, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.short {
				tt.round.TTLms = 2000
			}
			if tt.starved > 0 {
				tt.round.Halts = []results.Halt{{Host: 1, Why: results.HaltStarved, From: tt.starved * ms, To: 3500 * ms}}
			}
			c := Cells([]results.Round{tt.round})[0]
			want := ClassHeld
			if tt.unserved > 0 {
				want = ClassBroken
			}
			if c.Unserved != tt.unserved || c.Class != want || c.Unsafe() != (tt.unserved > 0) || len(c.Violations) != tt.unserved {
				t.Errorf("%+v, want %d violations", c, tt.unserved)
			}
		})
	}
}

func TestControlsJudgeNobody(t *testing.T) {
	r := round("freeze-host", lease(0, 1, 0, 2, 4001, 4002, 0), lease(1, 2, 50, 100, 4300, 0, 5000))
	r.Control = true
	if c := Cells([]results.Round{r})[0]; c.Class != ClassBroken || c.Unsafe() {
		t.Errorf("%+v", c)
	}
	missing := results.Round{Backend: "etcd", Fault: "clock-back", Missing: "no clock"}
	if c := Cells([]results.Round{missing})[0]; c.Class != ClassNotRun || c.Why != "no clock" {
		t.Errorf("%+v", c)
	}
}

func TestStaleRenewal(t *testing.T) {
	first := results.Hold{Token: 1, GrantedNs: 10, Renewals: [][2]int64{{20, 25}, {40, 45}}}
	for _, tt := range []struct {
		name string
		next results.Hold
		want int64
	}{
		{"granted after the last one was sent", results.Hold{Token: 2, GrantedNs: 42}, 0},
		{"granted before it was sent", results.Hold{Token: 2, GrantedNs: 30}, 10},
		{"an older grant that came back late", results.Hold{Token: 1, GrantedNs: 30}, 0},
	} {
		if got := staleRenewal(first, tt.next); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
