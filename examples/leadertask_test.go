package examples_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type piece struct {
	at    string
	token uint64
}

func pieces(t *testing.T, all ...*process) []piece {
	t.Helper()
	var work []piece
	for _, p := range all {
		for _, line := range p.output() {
			before, after, ok := strings.Cut(line, " works, token ")
			if !ok {
				continue
			}
			var w piece
			var n int
			if _, err := fmt.Sscanf(after, "%d, piece %d", &w.token, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			w.at, _, _ = strings.Cut(before, " ")
			work = append(work, w)
		}
	}
	slices.SortFunc(work, func(a, b piece) int { return strings.Compare(a.at, b.at) })
	return work
}

// checkPieces fails if a leader did work after another leader with a higher token had worked.
func checkPieces(t *testing.T, all ...*process) (terms int) {
	t.Helper()
	var last piece
	for _, w := range pieces(t, all...) {
		if w.token < last.token {
			t.Errorf("the leader with token %d worked at %s, after one with token %d had at %s", w.token, w.at, last.token, last.at)
		}
		if w.token != last.token {
			terms++
		}
		last = w
	}
	return terms
}

// testLeadertask runs three candidates and kills each leader. The
// candidates have the same label, as the containers of one image do.
func testLeadertask(t *testing.T, w system) {
	tick, kills := "200ms", 2
	if long {
		tick, kills = "1s", 10
	}
	launch := func() *process {
		return w.run(t, "leadertask", "--tick", tick, "--ttl", "1200ms", "--label", "app:1")
	}
	up := []*process{launch(), launch(), launch()}
	all := slices.Clone(up)
	known := map[*process]bool{}
	leader := func() *process {
		t.Helper()
		for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, p := range up {
				if !known[p] && len(pieces(t, p)) > 1 {
					return p
				}
			}
		}
		t.Fatal("there is no leader")
		return nil
	}
	var took []time.Duration
	for range kills {
		p := leader()
		known[p] = true
		p.kill()
		killed := time.Now()
		up = slices.DeleteFunc(up, func(q *process) bool { return q == p })
		for len(pieces(t, up...)) == 0 {
			if time.Since(killed) > timeout {
				t.Fatal("nobody took over")
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(killed).Round(time.Millisecond))
		p = launch()
		up, all = append(up, p), append(all, p)
	}
	for _, p := range up {
		p.await(t, 0, "candidate") // before this line, the program does not handle SIGTERM
		p.terminate(t)
	}
	if terms := checkPieces(t, all...); terms < kills+1 {
		t.Errorf("%d terms after %d kills", terms, kills)
	}
	t.Logf("a killed leader was replaced after %v", took)
}

func TestLeadertaskInOneProcess(t *testing.T) {
	t.Parallel()
	p := run(t, "leadertask", "--instances", "3", "--tick", "100ms", "--ttl", "10s")
	for n, from := 0, 0; n < 5; n++ {
		_, from = p.await(t, from, " works, token ")
	}
	p.terminate(t)
	if terms := checkPieces(t, p); terms != 1 {
		t.Errorf("%d terms, want one that lasts", terms)
	}
}
