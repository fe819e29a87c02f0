package results

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
)

func sampleCell(backend string, n int) Cell {
	c := Cell{
		Section: Section{
			CellName: CellName{Backend: backend, Scenario: "acquire", Clients: 8}, Kind: KindPlugin, Fencing: "durable", Run: 1,
			Names: []string{"a", "b"},
		},
		Cycles: n, Elapsed: time.Second,
		Latencies: map[string][]int64{},
		Values:    map[string]float64{"cycles/s": float64(n)},
	}
	r := rand.New(rand.NewPCG(1, uint64(n)))
	at := int64(0)
	for i := range n {
		a := Attempt{Client: int32(i % 8), Name: int32(i % 2), Asked: at, Answered: at + 1000, Outcome: Granted, Token: 1e15 + r.Uint64N(1e6)}
		switch i % 5 {
		case 0:
			a.Outcome, a.Token = Refused, 0
		case 1:
			a.End = EndOpen
		default:
			a.End, a.Ended, a.Done = EndReleased, at+2000, at+2500
		}
		c.Attempts = append(c.Attempts, a)
		c.Latencies["acquire"] = append(c.Latencies["acquire"], 1000+r.Int64N(1e5))
		at += r.Int64N(5000)
	}
	return c
}

// TestEventsCutAnywhere cuts off an events file at many lengths. The reader must return only
// attempts that were written, report an incomplete file, and never panic.
func TestEventsCutAnywhere(t *testing.T) {
	var file bytes.Buffer
	w, _ := NewEventWriter(&file)
	c := sampleCell("redis", 2*blockSize+1000)
	if err := w.Write(c.Section, c.Attempts); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	seen := map[int]bool{}
	for n := 0; n <= len(whole); n = min(n+1+n/50, max(n+1, len(whole))) {
		var got []Attempt
		err := ReadEvents(bytes.NewReader(whole[:n]), func(_ Section, a []Attempt) error {
			got = append(got, a...)
			return nil
		})
		if n == len(whole) && (err != nil || len(got) != len(c.Attempts)) || n < len(whole) && !errors.Is(err, ErrTruncated) {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
		if !slices.Equal(got, c.Attempts[:len(got)]) {
			t.Fatalf("cut at %d: attempts differ", n)
		}
		seen[len(got)] = true
	}
	for _, want := range []int{0, blockSize, 2 * blockSize} {
		if !seen[want] {
			t.Errorf("no cut left %d attempts: blocks cannot be read alone", want)
		}
	}
}

func TestEventsDamaged(t *testing.T) {
	var file bytes.Buffer
	w, _ := NewEventWriter(&file)
	c := sampleCell("redis", 100)
	if err := w.Write(c.Section, c.Attempts); err != nil {
		t.Fatal(err)
	}
	b := file.Bytes()
	b[len(b)-5] ^= 1
	err := ReadEvents(bytes.NewReader(b), func(Section, []Attempt) error { return nil })
	if !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "checksum") {
		t.Error(err)
	}
	future := []byte(eventMagic[:len(eventMagic)-1] + "\x09")
	if err := ReadEvents(bytes.NewReader(future), nil); err == nil || errors.Is(err, ErrTruncated) {
		t.Error("a later version was read:", err)
	}
}

func newFolder(t *testing.T) *Folder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	f, err := Create(dir, Manifest{Started: time.Now(), Machine: Machine{OS: "linux", Arch: "amd64", CPU: "a CPU"}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFolder(t *testing.T) {
	f := newFolder(t)
	if _, err := Create(f.Dir, Manifest{}); !errors.Is(err, ErrNotEmpty) {
		t.Error("a used directory is taken:", err)
	}
	ended := sampleCell("redis", 5)
	ended.Interrupted = true
	if err := errors.Join(f.Add(sampleCell("redis", 700)), f.Add(sampleCell("redislock", 10_000)), f.Add(ended), f.Close(StateInterrupted)); err != nil {
		t.Fatal(err)
	}
	m, err := ReadManifest(f.Dir)
	if err != nil || m.State != StateInterrupted || m.Format != Format {
		t.Errorf("%+v %v", m, err)
	}
	results, err := ReadResults(f.Dir)
	if err != nil || len(results) != 2 {
		t.Fatalf("%d results, %v", len(results), err)
	}
	if r := results[0]; r.Values["p50-ns/acquire"] < 1000 || r.Values["p99-ns/acquire"] < r.Values["p50-ns/acquire"] {
		t.Errorf("%v", r.Values)
	}
	for i, want := range []bool{false, true} { // the figures of 700 and of 10,000 samples
		if _, ok := results[i].Values["p99.9-ns/acquire"]; ok != want {
			t.Errorf("%d: a p99.9: %v", i, ok)
		}
	}
}

// TestResultsAreGoBenchmarks reads results.txt with benchstat's library. It checks the syntax, the
// name of the cell, and that each unit says whether higher or lower values are better.
func TestResultsAreGoBenchmarks(t *testing.T) {
	f := newFolder(t)
	if err := errors.Join(f.Add(sampleCell("redis", 10_000)), f.Close(StateDone)); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(f.Dir, ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := benchfmt.NewReader(file, ResultsFile)
	var names []string
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			names = append(names, rec.Name.String())
			for _, v := range rec.Values {
				if r.Units().GetBetter(v.Unit) == 0 {
					t.Errorf("unit %s (%s) has no direction", v.Unit, v.OrigUnit)
				}
			}
		}
	}
	if want := []string{"Acquire/backend=redis/clients=8"}; !slices.Equal(names, want) {
		t.Errorf("names %q, want %q", names, want)
	}
}

func cut(t *testing.T, path string, n int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()-n)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestHistogramsOfRunsAreMerged checks that ReadHistograms merges the histograms of several runs,
// but not of several modes. From a cut file, only the last line may be lost.
func TestHistogramsOfRunsAreMerged(t *testing.T) {
	f := newFolder(t)
	killed := HistogramKey{CellName{Scenario: "takeover", Backend: "redis", Mode: "kill-host", Hosts: 2, Clients: 1}, "takeover"}
	frozen := killed
	frozen.Mode = "freeze"
	for i, key := range []HistogramKey{killed, frozen, killed, killed} {
		c := Cell{Section: Section{CellName: key.CellName, Run: i}}
		c.Latencies = map[string][]int64{key.Op: {1000, 2000}}
		if err := f.Add(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(StateDone); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ cut, killed int64 }{{0, 6}, {20, 4}} {
		cut(t, filepath.Join(f.Dir, HistogramsFile), tt.cut)
		all, err := ReadHistograms(f.Dir)
		if err != nil || len(all) != 2 || all[killed].TotalCount() != tt.killed || all[frozen].TotalCount() != 2 {
			t.Errorf("cut by %d: %v, %v", tt.cut, all, err)
		}
	}
}
