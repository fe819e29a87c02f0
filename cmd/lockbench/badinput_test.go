package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/record"
)

// TestBadFolders: what is wrong with a folder is one line and exit code 2.
func TestBadFolders(t *testing.T) {
	grant := record.Attempt{Asked: 0, Answered: 1e6, Ended: 5e6, Done: 6e6, Token: 7, Outcome: record.Granted, End: record.EndReleased}
	write := func(name, text string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string
	}{
		"empty run.json":   {write(record.ManifestFile, ""), "run.json"},
		"cut run.json":     {write(record.ManifestFile, `{"format": 1, "state"`), "unexpected end"},
		"foreign run.json": {write(record.ManifestFile, `{"name": "something else"}`), "not of lockbench"},
		"later run.json":   {write(record.ManifestFile, `{"format": 99}`), "format 99"},
		"later events":     {write(record.EventsFile, "lockbench-ev\x09"), "version 9"},
		"no events":        {remove(record.EventsFile), record.EventsFile},
		"no results":       {remove(record.ResultsFile), record.ResultsFile},
		"no histograms":    {remove(record.HistogramsFile), record.HistogramsFile},
		"run.json a folder": {func(t *testing.T, dir string) {
			remove(record.ManifestFile)(t, dir)
			mkdir(t, filepath.Join(dir, record.ManifestFile))
		}, "directory"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := planted(t, record.KindPlugin, grant)
			tt.spoil(t, dir)
			for _, command := range []string{"check", "report"} {
				code, stdout, stderr := lockbench(t, command, dir)
				if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
					t.Errorf("%s: exit %d, %q, %q", command, code, stdout, stderr)
				}
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", file}, {"report", file}, {"run", "-o", file}, {"run", "-o", filepath.Join(file, "below")}} {
		if code, _, stderr := lockbench(t, args...); code != exitUsage || !strings.Contains(stderr, file) {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	for _, args := range [][]string{{"run", "-o", "-"}, {"merge", "a", "b", "-o", "-"}} {
		if code, _, stderr := lockbench(t, args...); code != exitUsage || !strings.Contains(stderr, "is not a folder") {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFolders: what can be read of a folder that was cut is shown.
func TestDamagedFolders(t *testing.T) {
	grant := record.Attempt{Asked: 0, Answered: 1e6, Ended: 5e6, Done: 6e6, Token: 7, Outcome: record.Granted, End: record.EndReleased}
	for name, tt := range map[string]struct {
		file string
		keep int64 // of its bytes; from the end if negative
		code int   // of check
	}{
		"events without their end": {record.EventsFile, -3, exitOK},
		"events without a mark":    {record.EventsFile, 4, exitInvalid},
		"results cut":              {record.ResultsFile, -5, exitOK},
		"histograms cut":           {record.HistogramsFile, -5, exitOK},
	} {
		t.Run(name, func(t *testing.T) {
			dir := planted(t, record.KindPlugin, grant)
			path := filepath.Join(dir, tt.file)
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			size := tt.keep
			if size < 0 {
				size += info.Size()
			}
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
			if code, stdout, stderr := lockbench(t, "check", dir); code != tt.code {
				t.Errorf("check: exit %d, %q, %q", code, stdout, stderr)
			}
			if code, stdout, stderr := lockbench(t, "report", dir); code != exitOK || tt.file == record.EventsFile && !strings.Contains(stdout, "end early") {
				t.Errorf("report: exit %d, %q, %q", code, stdout, stderr)
			}
		})
	}
}

// TestKilledRunIsCheckedAndShown: of a run that was killed while it wrote its events
// a violation is found, and the report is headed by both.
func TestKilledRunIsCheckedAndShown(t *testing.T) {
	grant := record.Attempt{Asked: 0, Answered: 1e6, Ended: 5e6, Done: 6e6, Token: 7, Outcome: record.Granted, End: record.EndReleased}
	other := grant
	other.Client, other.Token = 1, 8
	dir := planted(t, record.KindPlugin, grant, other)
	manifest, events := filepath.Join(dir, record.ManifestFile), filepath.Join(dir, record.EventsFile)
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	running := strings.Replace(string(text), `"state": "done"`, `"state": "running"`, 1)
	info, err := os.Stat(events)
	if err := errors.Join(err, os.WriteFile(manifest, []byte(running), 0o600), os.Truncate(events, info.Size()-3)); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := lockbench(t, "check", dir); code != exitUnsafe || !strings.Contains(stdout, "two holders at once") {
		t.Errorf("check: exit %d, %q, %q", code, stdout, stderr)
	}
	head := "INCOMPLETE: the run is still going on, or was killed; of what it had measured: UNSAFE: 1 violation"
	code, stdout, stderr := lockbench(t, "report", dir)
	if said := strings.Join(strings.Fields(stdout), " "); code != exitOK || !strings.HasPrefix(said, head) || !strings.Contains(said, "end early") {
		t.Errorf("report: exit %d, %q, %q", code, stdout, stderr)
	}
}

// TestTargetDies in mid-run: an environment error that names it, and a folder
// with all that was measured before.
func TestTargetDies(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	ended := make(chan struct{})
	dead := make(chan error, 1)
	go func() {
		measured := func() bool {
			text, err := os.ReadFile(filepath.Join("out", record.ResultsFile))
			return err == nil && strings.Count(string(text), "BenchmarkAcquire/") > 1
		}
		for !measured() {
			select {
			case <-ended: // too early; the run says why
				dead <- nil
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
		dead <- s.Stop()
	}()
	// With this seed a floor follows, which ends at once; a cell of callers that
	// wait for the store would take its ten seconds of grace.
	code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "1000", "--clients", "2", "--backends", "redis", "--seed", "1",
		"--target", "redis="+s.Addr(), "-o", "out", "--plugin-dir", dir)
	close(ended)
	if err := <-dead; err != nil {
		t.Fatal(err)
	}
	if code != exitEnvironment || !strings.Contains(stderr, s.Addr()) || !strings.Contains(stdout, "the run failed") || !strings.Contains(stdout, "redis (plugin)") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	m, err := record.ReadManifest("out")
	if err != nil || m.State != record.StateFailed || m.Failure == "" {
		t.Errorf("%+v, %v", m, err)
	}
	if code, stdout, stderr := lockbench(t, "check", "out"); code != exitOK || !strings.Contains(stdout, "0 overlaps") {
		t.Errorf("check: exit %d, %q, %q", code, stdout, stderr)
	}
}

// TestDeadBackendCostsItsOwnCells: the others are measured in every run, and the
// run has failed all the same.
func TestDeadBackendCostsItsOwnCells(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "2", "--clients", "1", "--backends", "redis,memory",
		"--target", "redis=127.0.0.1:1", "-o", "out", "--plugin-dir", dir)
	if code != exitEnvironment || !strings.Contains(stderr, "127.0.0.1:1") || !strings.Contains(stdout, "the run failed") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	text, err := os.ReadFile(filepath.Join("out", record.ResultsFile))
	if n := strings.Count(string(text), "backend=memory/"); err != nil || n != 2 {
		t.Errorf("%d lines of the backend that lives, %v", n, err)
	}
	m, err := record.ReadManifest("out")
	if err != nil || m.State != record.StateFailed || len(m.Failed) != 1 || m.Failed[0].Backend != "redis" || m.MachineLoad == nil {
		t.Errorf("%+v, %v", m, err)
	}
}
