package check

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/results"
)

var section = results.Section{
	Backend: "redis", Kind: results.KindPlugin, Fencing: "durable", Scenario: "acquire", Run: 1, Names: []string{"a", "b"},
}

// held is a grant that was asked, answered, ended at the given times.
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

// TestViolationsAcrossSections: a violation between two cells is found, and says who
// did what and when. That of a baseline is shown and not counted.
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

// TestAgainstPairs compares both checks with the definition, pair by pair, on
// random histories.
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
			token = token || a.Token == b.Token || a.Answered <= b.Asked && b.Token <= a.Token
		}
	}
	return overlap, token
}

// TestFolder: a folder is judged by what stands in its files, edited by hand or not,
// and one that is cut by what is left.
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
