package bench

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// These attempts all get the same lock. The lease called within overlaps with the lease called
// first. The lease called after begins later, but repeats the token of first.
var (
	first  = results.Attempt{Asked: 0, Answered: 1e6, Ended: 5e6, Done: 6e6, Token: 7, Outcome: results.Granted, End: results.EndReleased}
	within = results.Attempt{Client: 1, Asked: 0, Answered: 2e6, Ended: 3e6, Done: 4e6, Token: 8, Outcome: results.Granted, End: results.EndReleased}
	after  = results.Attempt{Client: 1, Asked: 7e6, Answered: 8e6, Ended: 9e6, Done: 10e6, Token: 7, Outcome: results.Granted, End: results.EndReleased}
)

func planted(t *testing.T, kind results.Kind, attempts ...results.Attempt) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	f, err := results.Create(dir, results.Manifest{Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s := results.Section{CellName: results.CellName{Backend: "redis", Scenario: "acquire"}, Kind: kind, Fencing: "durable", Run: 1, Names: []string{"jobs"}}
	if err := errors.Join(f.Add(results.Cell{Section: s, Attempts: attempts}), f.Close(results.StateDone)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func text(t *testing.T, o *Outcome, format string) string {
	t.Helper()
	var b strings.Builder
	if o != nil {
		if err := o.Write(&b, format); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func reported(t *testing.T, dir string) (string, error) {
	t.Helper()
	o, _, err := Report(dir, filepath.Join(t.TempDir(), "page.html"))
	return text(t, o, "text"), err
}

func fine(err error) bool   { return err == nil }
func unsafe(err error) bool { return errors.Is(err, ErrUnsafe) }

func noRun(err error) bool {
	var invalid *InvalidError
	return errors.As(err, &invalid)
}

func TestCheckJudges(t *testing.T) {
	for _, tt := range []struct {
		name     string
		kind     results.Kind
		attempts []results.Attempt
		is       func(error) bool
		want     []string
	}{
		{"overlap", results.KindPlugin, []results.Attempt{first, within}, unsafe,
			[]string{"overlap: redis", `"jobs"`, "caller 0", "caller 1", "1ms", "2ms", "UNSAFE: 1 violation"}},
		{"token repeats", results.KindPlugin, []results.Attempt{first, after}, unsafe, []string{"token: redis", "token 7", "UNSAFE"}},
		{"overlap of a baseline", results.KindBaseline, []results.Attempt{first, within}, fine, []string{"overlap: redis"}},
		{"nothing", results.KindPlugin, nil, noRun, nil},
		{"one grant", results.KindPlugin, []results.Attempt{first}, fine, []string{"safe: 1 grants"}},
	} {
		o, err := Check(planted(t, tt.kind, tt.attempts...))
		if !tt.is(err) {
			t.Errorf("%s: %v", tt.name, err)
		}
		for _, want := range tt.want {
			if said := text(t, o, "text"); !strings.Contains(said, want) {
				t.Errorf("%s: %q does not say %q", tt.name, said, want)
			}
		}
		if !json.Valid([]byte(text(t, o, "json"))) {
			t.Errorf("%s: %s", tt.name, text(t, o, "json"))
		}
	}
}

// TestBadFolders checks that the error for a bad folder is a usage error with a text of one line.
func TestBadFolders(t *testing.T) {
	for name, tt := range map[string]struct {
		file  string
		write string // the new content of the file; "" removes the file
		want  string
	}{
		"empty run.json":   {results.ManifestFile, "\n", "run.json"},
		"cut run.json":     {results.ManifestFile, `{"format": 1, "state"`, "unexpected end"},
		"foreign run.json": {results.ManifestFile, `{"name": "something else"}`, "not of lockbench"},
		"later run.json":   {results.ManifestFile, `{"format": 99}`, "format 99"},
		"later events":     {results.EventsFile, "lockbench-ev\x09", "version 9"},
		"no run.json":      {results.ManifestFile, "", "run.json"},
		"no events":        {results.EventsFile, "", results.EventsFile},
		"no results":       {results.ResultsFile, "", results.ResultsFile},
		"no histograms":    {results.HistogramsFile, "", results.HistogramsFile},
	} {
		dir := planted(t, results.KindPlugin, first)
		err := os.Remove(filepath.Join(dir, tt.file))
		if err == nil && tt.write != "" {
			err = os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.write), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, checked := Check(dir)
		_, shown := reported(t, dir)
		for _, err := range []error{checked, shown} {
			if !IsUsage(err) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestDamagedFolders cuts off the end of a file in a result folder. Check must still find a
// violation in the intact part of the file, and Report must still show that part.
func TestDamagedFolders(t *testing.T) {
	for name, tt := range map[string]struct {
		file string
		keep int64 // number of bytes to keep; if negative, number of bytes to cut from the end
		is   func(error) bool
	}{
		"events without their end": {results.EventsFile, -3, unsafe},
		"events without a mark":    {results.EventsFile, 4, noRun},
		"results cut":              {results.ResultsFile, -5, unsafe},
		"histograms cut":           {results.HistogramsFile, -5, unsafe},
	} {
		dir := planted(t, results.KindPlugin, first, within)
		cut(t, filepath.Join(dir, tt.file), tt.keep)
		if _, err := Check(dir); !tt.is(err) {
			t.Errorf("%s: check: %v", name, err)
		}
		whole := planted(t, results.KindPlugin, first)
		cut(t, filepath.Join(whole, tt.file), tt.keep)
		var invalid *InvalidError
		if _, err := Check(whole); tt.file == results.EventsFile && !errors.As(err, &invalid) {
			t.Errorf("%s, without a violation: %v", name, err)
		}
		if said, err := reported(t, dir); err != nil || tt.file == results.EventsFile && !strings.Contains(said, "end early") {
			t.Errorf("%s: report: %v, %q", name, err, said)
		}
	}
}

func cut(t *testing.T, path string, keep int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if keep < 0 {
		keep += info.Size()
	}
	if err := os.Truncate(path, keep); err != nil {
		t.Fatal(err)
	}
}
