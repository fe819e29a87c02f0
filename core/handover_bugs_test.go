package core

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// handoverBugs are bugs of a hand-over inside a host, or of a grant without an acquire. If a bug's
// wrong code replaces its right code, the test named in its caught field must fail.
var handoverBugs = []struct {
	name, file, right, wrong string
	does                     bool
	caught                   string
}{
	{
		name: "handed over past the deadline", file: "queue.go",
		right: "left < l.span/2", wrong: "false",
		caught: "TestSuspendInAStreak",
	},
	{
		name: "handed over shortly before the deadline", file: "queue.go",
		right: "left < l.span/2", wrong: "left < 0",
		caught: "TestHandOverThroughTheStore",
	},
	{
		name: "the token is not raised", file: "queue.go",
		right: "g.token++", does: true,
		caught: "TestK5HandOverAsksNobody",
	},
	{
		name: "a streak without end", file: "queue.go",
		right: "e.streak >= maxHandovers || e.streak >= minStreak && now.sub(e.since) >= minStreakTime", wrong: "false",
		caught: "TestK5OtherHostGetsItsTurn",
	},
	{
		name: "a streak that ends by its number alone", file: "queue.go",
		right: "now.sub(e.since) >= minStreakTime", wrong: "true",
		caught: "TestK5StreakEnds",
	},
	{
		name: "hand-overs run into the next grant", file: "queue.go",
		right: "e.streak >= maxHandovers", wrong: "false",
		caught: "TestK5StreakEnds",
	},
	{
		name: "a hand-over extends the deadline", file: "queue.go",
		right: "next.deadline.Store(l.deadline.Load())", wrong: "next.extend(l.span, now, now)", does: true,
		caught: "TestHandedOverLease",
	},
	{
		name: "not renewed after a hand-over", file: "queue.go",
		right: "next.due = now", does: true,
		caught: "TestHandedOverLease",
	},
	{
		name: "a late release of the lease before ends the next", file: "queue.go",
		right: "l.gone = true", does: true,
		caught: "TestHandedOverLease",
	},
	{
		name: "a lease in doubt is handed over", file: "queue.go",
		right: "l.state != Held", wrong: "false",
		caught: "TestPluginDeathInAStreak",
	},
	{
		name: "a renewal under way is for the lease before", file: "queue.go",
		right: "f != nil && f.sent", wrong: "false",
		caught: "TestRenewalUnderWayAtAHandOver",
	},
	{
		name: "the health of the lease before is the next one's", file: "queue.go",
		right: "f != nil && f.sent", wrong: "f != nil",
		caught: "TestHealthAtAHandOver",
	},
	{
		name: "a notice is for the lease that the store granted", file: "renew.go",
		right: "GrantNumber(l.token) == GrantNumber(token)", wrong: "l.token == token",
		caught: "TestLossInAStreak",
	},
	{
		name: "terms are handed over", file: "lock.go",
		right: "!l.election", wrong: "true",
		caught: "TestElectionsGoThroughTheStore",
	},
	{
		name: "AtLeast is kept from the plugin", file: "lock.go",
		right: "l.opts.AtLeast == 0", wrong: "true",
		caught: "TestHandOverThroughTheStore",
	},
	{
		name: "AtLeast ends with a hand-over", file: "queue.go",
		right: "now < l.keepBy", wrong: "false",
		caught: "TestHandOverThroughTheStore",
	},
	{
		name: "who has given up keeps the lock", file: "contend.go",
		right: "return nil, joinErrors(over, a.discard(ctx))", wrong: "return nil, over", does: true,
		caught: "TestWaiterThatGivesUpPassesOn",
	},
	{
		name: "who has given up hides that the lock is kept", file: "contend.go",
		right: "!errors.Is(err, ErrNotHeld) && !errors.Is(err, ErrIndeterminate)", wrong: "false",
		caught: "TestGivenUpHandOverOfADownStore",
	},
	{
		name: "the store's own grant counts as one for the TTL", file: "contend.go",
		right: "g.span = min(own.For, a.lock.opts.TTL)", does: true,
		wrong:  "g.span = a.lock.opts.TTL",
		caught: "TestOwnGrant",
	},
	{
		name: "the store's own grant is counted from its push", file: "contend.go",
		right: "g.token, g.sent = own.Token, began.add(own.Sent.Sub(at))", does: true,
		wrong:  "g.token, g.sent = own.Token, c.clock.early()",
		caught: "TestOwnGrant",
	},
	{
		name: "the store's own grant is renewed as one for the TTL", file: "schedule.go",
		right: "l.due = g.got.add(l.firstPause(g.got))", wrong: "l.due = g.sent.add(every - early)", does: true,
		caught: "TestOwnGrant",
	},
	{
		name: "the store's own grant is handed over as one for the TTL", file: "queue.go",
		right: "next.span, next.endAt, next.expiresBy = l.span, l.endAt, l.expiresBy", wrong: "next.extend(l.lock.opts.TTL, now, now)", does: true,
		caught: "TestOwnGrantIsHandedOver",
	},
	{
		name: "a grant counted back over a suspend", file: "contend.go",
		right: "c.clock.sleptSince(g.sent)", wrong: "false",
		caught: "TestOwnGrantOverASuspend",
	},
	{
		name: "the store's own grant is used however old", file: "contend.go",
		right: "age >= g.span/2", wrong: "false",
		caught: "TestOwnGrantThatIsAskedFor",
	},
	{
		name: "AtLeast without the TTL", file: "contend.go",
		right: "a.lock.opts.AtLeast > 0", wrong: "false",
		caught: "TestOwnGrantThatIsAskedFor",
	},
	{
		name: "a first renewal that cannot come in time", file: "contend.go",
		right: "lifeOf(g.span)-age < 2*c.roundTrip()", wrong: "false",
		caught: "TestOwnGrantFarAway",
	},
	{
		name: "a first renewal that waits for too long", file: "schedule.go",
		right: "return max(0, min(left/3, left-2*l.c.roundTrip()))", wrong: "return left / 3", does: true,
		caught: "TestOwnGrantFarAway",
	},
	{
		name: "a third of a short span for its renewal", file: "renew.go",
		right: "budget = f.left", does: true,
		caught: "TestOwnGrantFarAway",
	},
	{
		name: "a release that forgets the renewal under way", file: "renew.go",
		right: "l.expiresBy = max(l.expiresBy, sent.add(l.lock.opts.TTL))", does: true,
		caught: "TestOwnGrantReleasedInDoubt",
	},
	{
		name: "a fixed length is renewed for ever", file: "renew.go",
		right: "l.due = never", wrong: "l.due = got.add(l.lock.opts.TTL / 3)", does: true,
		caught: "TestOwnGrantOfFixedLength",
	},
	{
		name: "who has not begun to work is asked for its health", file: "schedule.go",
		right: "healthy, class = nil, -class", wrong: "class = -class", does: true,
		caught: "TestOwnGrantBeforeItsHolderWorks",
	},
	{
		name: "a grant number of any size", file: "token.go",
		right: "number >= maxGrant", wrong: "false",
		caught: "TestGrantNumberTooLarge",
	},
}

// TestHandoverBugsAreCaught builds this package once, with a switch for
// each planted bug. For each bug it runs the test that must fail.
func TestHandoverBugsAreCaught(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "core.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", plantBugs(t), "-o", binary, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run := func(test, bug string) (string, error) {
		c := exec.CommandContext(t.Context(), binary, "-test.run", "^"+test+"$", "-test.timeout", "30s")
		c.Env = append(os.Environ(), "PLANTED="+bug)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	for _, b := range handoverBugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if out, err := run(b.caught, ""); err != nil {
				t.Fatalf("without a bug %s fails: %v\n%s", b.caught, err, out)
			}
			out, err := run(b.caught, b.name)
			if err == nil || !strings.Contains(out, "_test.go:") {
				t.Fatalf("%s does not catch it: %v\n%s", b.caught, err, out)
			}
			for line := range strings.Lines(out) {
				if strings.Contains(line, "_test.go:") {
					t.Log(strings.TrimSpace(line))
					break
				}
			}
		})
	}
}

// plantBugs writes an overlay file for the go command, which plants the bugs, and returns its path.
func plantBugs(t *testing.T) string {
	t.Helper()
	sources := map[string]string{"planted.go": "package core\n\nimport \"os\"\n\nvar bug = os.Getenv(\"PLANTED\")\n\nfunc planted(name string) bool { return bug == name }\n"}
	for _, b := range handoverBugs {
		if sources[b.file] == "" {
			text, err := os.ReadFile(b.file)
			if err != nil {
				t.Fatal(err)
			}
			sources[b.file] = string(text)
		}
		both := fmt.Sprintf("(planted(%[1]q) && (%[2]s) || !planted(%[1]q) && (%[3]s))", b.name, b.wrong, b.right)
		if b.does {
			both = fmt.Sprintf("if planted(%q) {\n%s\n} else {\n%s\n}", b.name, b.wrong, b.right)
		}
		if n := strings.Count(sources[b.file], b.right); n != 1 {
			t.Fatalf("%q is in %s %d times", b.right, b.file, n)
		}
		sources[b.file] = strings.Replace(sources[b.file], b.right, both, 1)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for name, text := range sources {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(here, name)] = path
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}
