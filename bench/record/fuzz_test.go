package record

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"
)

// FuzzReadEvents: whatever the bytes are, reading ends, and what it emits can be
// written and read again.
func FuzzReadEvents(f *testing.F) {
	var file bytes.Buffer
	w, err := NewEventWriter(&file)
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{0, 3, 40} {
		c := sampleCell("redis", n)
		if err := w.Write(c.Section, c.Attempts); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(file.Bytes())
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte(eventMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		var sections []Section
		var all [][]Attempt
		_ = ReadEvents(bytes.NewReader(b), func(s Section, attempts []Attempt) error {
			sections, all = append(sections, s), append(all, slices.Clone(attempts))
			return nil
		})
		var again bytes.Buffer
		w, err := NewEventWriter(&again)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range sections {
			if err := w.Write(s, all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		n := 0
		err = ReadEvents(&again, func(s Section, attempts []Attempt) error {
			if !reflect.DeepEqual(s, sections[n]) || !slices.Equal(attempts, all[n]) {
				t.Errorf("section %d: %+v, %v; was %+v, %v", n, s, attempts, sections[n], all[n])
			}
			n++
			return nil
		})
		if err != nil || n != len(sections) {
			t.Errorf("%d of %d sections, %v", n, len(sections), err)
		}
	})
}

// FuzzAttempts: a block of any attempts is read as it was written.
func FuzzAttempts(f *testing.F) {
	f.Add(appendAttempts(nil, sampleCell("redis", 20).Attempts))
	f.Add([]byte{0x11, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		attempts, _ := parseAttempts(nil, b)
		again, err := parseAttempts(nil, appendAttempts(nil, attempts))
		if err != nil || !slices.Equal(again, attempts) {
			t.Errorf("%v, %v; was %v", again, err, attempts)
		}
	})
}

// FuzzReadResults: whatever the file holds, reading it ends.
func FuzzReadResults(f *testing.F) {
	var file bytes.Buffer
	if err := writeHeader(&file, Manifest{Machine: Machine{OS: "linux", Arch: "amd64", CPU: "a CPU"}}); err != nil {
		f.Fatal(err)
	}
	if err := writeResult(&file, sampleCell("redis", 700)); err != nil {
		f.Fatal(err)
	}
	f.Add(file.Bytes())
	f.Add([]byte("Benchmark 1 2 ns/op\n"))
	f.Add([]byte("BenchmarkX/backend=/clients=x/keys=/hold=- 1 2 ns/op\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = scanResults(b, func(res *benchfmt.Result) { parseResult(res) })
	})
}

// FuzzResult: the line of any cell is read as it was written, to six digits.
func FuzzResult(f *testing.F) {
	f.Add("kill-host", 2, 64, 1024, int64(time.Millisecond), 700, 1234.5678, 1e6, int64(12345))
	f.Add("", 0, 1, 0, int64(0), 0, math.Inf(1), 0.0, int64(-5))
	f.Fuzz(func(t *testing.T, mode string, hosts, clients, keys int, hold int64, cycles int, rate, jain float64, ns int64) {
		clients = max(clients, 1)
		if !plainWord(mode) {
			t.Skip("modes are words")
		}
		c := Cell{
			Section: Section{Scenario: "contend", Backend: "redis", Mode: mode, Hosts: max(hosts, 0), Clients: clients, Keys: max(keys, 0), HoldNs: max(hold, 0)},
			Cycles:  cycles, Latencies: map[string][]int64{"wait": {ns}}, Values: map[string]float64{"cycles/s": rate, "jain": jain},
		}
		var line bytes.Buffer
		if err := writeResult(&line, c); err != nil {
			t.Fatal(err)
		}
		var got []Result
		if _, err := scanResults(line.Bytes(), func(res *benchfmt.Result) { got = append(got, parseResult(res)) }); err != nil || len(got) != 1 {
			t.Fatalf("%d lines of %q, %v", len(got), line.String(), err)
		}
		want := Result{
			Scenario: "contend", Backend: "redis", Mode: mode, Hosts: c.Hosts, Clients: clients, Keys: c.Keys,
			Hold: time.Duration(c.HoldNs), Cycles: max(1, cycles),
		}
		values := got[0].Values
		got[0].Values = nil
		if !reflect.DeepEqual(got[0], want) {
			t.Errorf("%+v of %q, want %+v", got[0], line.String(), want)
		}
		for unit, v := range map[string]float64{"cycles/s": rate, "jain": jain, "p50-ns/wait": float64(ns)} {
			read, ok := values[unit]
			if finite := !math.IsInf(v, 0) && !math.IsNaN(v); ok != finite || ok && math.Abs(read-v) > 1e-5*math.Abs(v) {
				t.Errorf("%s is %v (%v) in %q, want %v", unit, read, ok, line.String(), v)
			}
		}
	})
}

func plainWord(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && r != '-' {
			return false
		}
	}
	return len(s) < 1 || s[len(s)-1] != '-'
}

// FuzzManifest: a run.json that can be read is the same when it was written
// again.
func FuzzManifest(f *testing.F) {
	for _, m := range []Manifest{{}, {
		Format: Format, State: StateDone, Started: time.Unix(1, 2).UTC(), Elapsed: 1.5,
		Plan: Plan{Seed: math.MaxUint64, Backends: []string{"redis"}, Clients: []int{1, 8}, Rate: 0.5}, Subjects: []Subject{{Name: "redis", Kind: KindPlugin}},
		Binaries: map[string]string{"lockbench": "aa"}, Parts: []Part{{Seed: 1, Runs: 2}},
	}} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"plan":null,"subjects":[null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseManifest("dir", b)
		if err != nil {
			return
		}
		first, err := json.Marshal(m)
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := parseManifest("dir", first)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := json.Marshal(again); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s, %v; was %s", second, err, first)
		}
	})
}
