package claim

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBoundsAreMadeOfWhatTheCodeHas checks that the code still has the constants from which the
// bounds are computed. It searches the sources, because many constants are unexported or not in Go.
func TestBoundsAreMadeOfWhatTheCodeHas(t *testing.T) {
	for file, lines := range map[string][]string{
		"core/attempt.go":                  {"grace = 50 * time.Millisecond", "tick = 10 * time.Millisecond", "return min(max(ttl, 10*time.Millisecond), 3*time.Second)"},
		"core/client.go":                   {"defaultCleanupBudget = time.Second", "maxLook = 5 * time.Second"},
		"core/contend.go":                  {"maxAsk = time.Second", "waitSlack = time.Second", "retryFrom, retryTo = 20 * time.Millisecond, 500 * time.Millisecond"},
		"core/renew.go":                    {"maxRetry = 500 * time.Millisecond"},
		"core/plugin/supervise.go":         {"backoffFirst = 50 * time.Millisecond", "maxBackoff = 2 * time.Second", "crashLoop = 8", "steadyAfter = 20 * time.Second", "slowPace = 15 * time.Second"},
		"core/plugin/process.go":           {"closeCall = time.Second", "closeExit = time.Second", "killExit = 500 * time.Millisecond"},
		"core/plugin/socketdir.go":         {"sweepAfter = time.Minute"},
		"core/plugin/serve/lifeline.go":    {"aloneFor = 5 * time.Second"},
		"core/plugin/serve/release.go":     {"releaseBudget = time.Second"},
		"core/plugin/serve/process.go":     {"closeBudget = 700 * time.Millisecond"},
		"plugins/redlock/lua/queue.lua":    {"TURN_US, KEY_MS = 2000000, 250000, 3500"},
		"plugins/redlock/node.go":          {"pause = min(2*pause+20*time.Millisecond, time.Second)"},
		"plugins/mysql/owners.go":          {"goneFor = time.Minute"},
		"plugins/postgres/schema.sql":      {"+ interval '120 seconds'"},
		"plugins/internal/kit/distance.go": {"FirstSpan, LongestSpan = 500 * time.Millisecond, 2 * time.Second"},
		"plugins/etcd/waiter.go":           {"entryFor = 2 * time.Second"},
		"plugins/etcd/lease.go":            {"tombstoneFor = time.Minute", "tombstoneUse = 10 * time.Second"},
		"plugins/memory/memory.go":         {"placeFor = 2 * time.Second"},
	} {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		spaced := regexp.MustCompile(`[ \t]+`).ReplaceAllString(string(text), " ")
		for _, line := range lines {
			if !strings.Contains(spaced, line) {
				t.Errorf("%s has no %q: the bounds that are made of it are others now", file, line)
			}
		}
	}
}
