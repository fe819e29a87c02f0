package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// FuzzFolder writes random files into a result folder. Load must then return either an error, or a
// report that can be rendered in every format.
func FuzzFolder(f *testing.F) {
	manifest, err := json.Marshal(results.Manifest{
		Format: results.Format, State: results.StateDone, Plan: results.Plan{Runs: 2, TTLms: 1000, Backends: []string{"redis"}},
		Subjects: []results.Subject{{Name: "redis", Kind: results.KindPlugin, Fencing: "strict", Reference: "redislock"}, {Name: "redislock", Kind: results.KindBaseline}},
	})
	if err != nil {
		f.Fatal(err)
	}
	c := takeovers("redis", "freeze", 0, 5, 10)
	var events bytes.Buffer
	w, err := results.NewEventWriter(&events)
	if err := errors.Join(err, w.Write(c.Section, c.Attempts), w.Close()); err != nil {
		f.Fatal(err)
	}
	round := []byte(`{"backend":"redis","kind":"plugin","fault":"freeze-host","round":1,"ttl_ms":50,"hits":1,"names":1,"struck_ns":5,"leases":[{"token":7,"asked_ns":1,"granted_ns":2,"valid_ns":9}]}` + "\n")
	for _, lines := range []string{
		"BenchmarkAcquire/backend=redis/clients=1 10 5 p50-ns/acquire 7 cycles/s\nBenchmarkAcquire/backend=redislock/clients=1 10 4 p50-ns/acquire\n",
		"BenchmarkTakeover/backend=redis/mode=freeze/hosts=2/clients=1 1 5 p50-ns/takeover 1 early 2 late\nBenchmarkThroughput/backend=redis/clients=1/keys=8/hold=1ms 1 NaN cycles/s\n",
		"BenchmarkContend/backend=/clients=x 1 +Inf jain 0 p50-ns/handoff\nBenchmarkFootprint/backend=redis 1 -1 idle-bytes/plugin\n",
		"Benchmark 1 2 ns/op\n",
	} {
		f.Add(manifest, []byte(lines), round)
		f.Add([]byte(`{"format":1,"subjects":[{}]}`), []byte(lines), []byte(`{"missing":"x"}`+"\n"))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, manifest, lines, rounds []byte) {
		if len(rounds) > 2048 {
			return // the checker would take long for so many records
		}
		for name, b := range map[string][]byte{
			results.ManifestFile: manifest, results.ResultsFile: lines, results.EventsFile: events.Bytes(),
			results.HistogramsFile: nil, results.RoundsFile: rounds,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Load(dir)
		if err != nil {
			return
		}
		for _, format := range []string{"text", "md", "json", "html"} {
			if output(t, r, format) == "" {
				t.Errorf("nothing as %s", format)
			}
		}
	})
}
