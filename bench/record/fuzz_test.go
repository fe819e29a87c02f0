package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzEvents: a damaged events file is read up to the damage, or refused.
func FuzzEvents(f *testing.F) {
	var b bytes.Buffer
	w, err := NewEventWriter(&b)
	if err != nil {
		f.Fatal(err)
	}
	if err := w.Write(Section{Backend: "redis", Names: []string{"a"}}, []Attempt{{Asked: 1, Answered: 2, Token: 3, Outcome: Granted, End: EndReleased, Ended: 4, Done: 5}}); err != nil {
		f.Fatal(err)
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(eventMagic))
	f.Fuzz(func(t *testing.T, file []byte) {
		sections := 0
		_ = ReadEvents(bytes.NewReader(file), func(Section, []Attempt) error { sections++; return nil })
		if sections > len(file) {
			t.Errorf("%d sections in %d bytes", sections, len(file))
		}
	})
}

// FuzzAttempts: what is read of a block is written as it was read. Frames have
// checksums, which a fuzzer does not find.
func FuzzAttempts(f *testing.F) {
	f.Add(appendAttempts(nil, []Attempt{{Client: 1, Name: 2, Asked: 3, Answered: 4, Token: 5, Outcome: Granted}}))
	f.Fuzz(func(t *testing.T, block []byte) {
		attempts, err := parseAttempts(nil, block)
		if err != nil {
			return
		}
		again, err := parseAttempts(nil, appendAttempts(nil, attempts))
		if err != nil || len(again) != len(attempts) {
			t.Errorf("%x: %d attempts, then %d, %v", block, len(attempts), len(again), err)
		}
	})
}

// FuzzFolder: no text in run.json or results.txt makes a reader panic.
func FuzzFolder(f *testing.F) {
	f.Add([]byte(`{"format":1}`), []byte("BenchmarkAcquire/backend=redis/clients=64 10 5 p50-ns/acquire\n"))
	f.Add([]byte(`{`), []byte("Benchmark 1 2\n"))
	f.Fuzz(func(t *testing.T, manifest, results []byte) {
		dir := t.TempDir()
		for name, text := range map[string][]byte{ManifestFile: manifest, ResultsFile: results} {
			if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := ReadManifest(dir); err == nil && m.Format != Format {
			t.Errorf("format %d is read", m.Format)
		}
		_, _ = ReadResults(dir) // it must return
	})
}
