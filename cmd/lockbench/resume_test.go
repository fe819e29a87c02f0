package main

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/record"
)

// TestResume kills a run with -9 at three random moments. The last
// process that goes on with it leaves the cells of a run that nobody killed.
func TestResume(t *testing.T) {
	dir := plugins(t)
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	t.Chdir(t.TempDir())
	begin := func(out string) []string {
		return []string{"run", "--quick", "--runs", "4", "--scenarios", "acquire,contend", "--clients", "1,2", "--backends", "memory", "--seed", "3", "--plugin-dir", dir, "-o", out}
	}
	resume := []string{"run", "--resume", "cut", "--plugin-dir", dir}
	args := begin("cut")
	for range 3 {
		killAmidst(t, exec.Command(binary, args...), "cut", time.Duration(rand.Int64N(int64(200*time.Millisecond))))
		args = resume
	}
	if code, _, stderr := lockbench(t, "report", "cut"); code != exitOK {
		t.Errorf("report of a run that was killed: exit %d, %s", code, stderr)
	}
	last := exec.Command(binary, args...)
	var said bytes.Buffer
	last.Stdout, last.Stderr = &said, &said
	before := units(t, "cut")
	if err := last.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the last process measures", func() bool { return units(t, "cut") > before })
	refused(t, "another lockbench measures into it", resume...)
	if err := last.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.Bytes())
	}
	if n := strings.Count(said.String(), "the run was interrupted after"); n != 3 {
		t.Errorf("it says %d times that it was interrupted: %s", n, said.Bytes())
	}
	if code, _, stderr := lockbench(t, begin("whole")...); code != exitOK {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	if got, want := lines(t, "cut"), lines(t, "whole"); !maps.Equal(got, want) {
		t.Errorf("cells and their runs are %v, want %v", got, want)
	}
	if code, stdout, stderr := lockbench(t, "check", "cut"); code != exitOK || strings.Contains(stdout, "end early") {
		t.Errorf("check: exit %d, %s%s", code, stdout, stderr)
	}
	if m, err := record.ReadWhole("cut"); err != nil || len(m.Resumed) != 3 || m.Resumed[0].Units >= m.Resumed[2].Units {
		t.Errorf("run.json: %v, resumed %+v", err, m.Resumed)
	}
	refused(t, "its run is done", resume...)
}

// TestResumeRefused: nobody goes on with a run in another way than it began.
func TestResumeRefused(t *testing.T) {
	dir := plugins(t)
	binary := plugintest.Build(t, "github.com/lockbench/lockbench/cmd/lockbench")
	t.Chdir(t.TempDir())
	cmd := exec.Command(binary, "run", "--quick", "--runs", "100", "--backends", "memory", "--clients", "1", "--plugin-dir", dir, "-o", "cut")
	killAmidst(t, cmd, "cut", 0)
	resume := []string{"run", "--resume", "cut", "--plugin-dir", dir}
	refused(t, "--runs cannot be changed", append(resume, "--runs", "2")...)
	refused(t, "addresses and configuration are not kept", append(resume, "--config", "memory.x=1")...)
	refused(t, "--vs: false", append(resume, "--vs", dir)...)
	refused(t, "has no run.json", "run", "--resume", "nowhere")
	was, err := os.ReadFile(filepath.Join("cut", record.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	again := func(want, binary string) {
		t.Helper()
		out, err := exec.Command(binary, resume...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, %s; want %q", resume, err, out, want)
		}
	}
	for _, change := range []struct{ old, now, want string }{
		{`"lockplugin-memory": "`, `"lockplugin-memory": "00`, "lockplugin-memory is another build now"},
		{`"kernel": "`, `"kernel": "not `, "another kernel"},
		{`"name": "memory"`, `"name": "remote"`, "remote cannot be measured now"},
	} {
		put(t, "cut", record.ManifestFile, strings.Replace(string(was), change.old, change.now, 1))
		again(change.want, binary)
	}
	put(t, "cut", record.ManifestFile, string(was))
	refused(t, "lockbench is missing now", resume...) // this test is another build, of another name
	put(t, "cut", record.EventsFile, "")
	again("has 0 bytes", binary)
	put(t, "cut", record.JournalFile, "")
	refused(t, "ended before anything was measured", resume...)
	if err := os.Remove(filepath.Join("cut", record.JournalFile)); err != nil {
		t.Fatal(err)
	}
	refused(t, "it has no journal", resume...)
}

// TestResumeCommand: what an interrupted run prints can be pasted, and has no
// value of a configuration in it.
func TestResumeCommand(t *testing.T) {
	f := runFlags{given: bench.Plan{VS: "old/bin"}, servers: serverFlags{
		pluginDirs: []string{"it's here"}, targets: []string{"redis=env:REDIS_URL"}, config: []string{"redis.password=secret"},
	}}
	want := `lockbench run --resume 'a b' --plugin-dir 'it'\''s here' --target redis=env:REDIS_URL --vs old/bin, with the same --config,`
	if got := f.resumeCommand("a b"); got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func put(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, want string, args ...string) {
	t.Helper()
	if code, _, stderr := lockbench(t, args...); code != exitUsage || !strings.Contains(stderr, want) {
		t.Errorf("%v: exit %d, %s; want %q", args, code, stderr, want)
	}
}

// killAmidst kills cmd a while after it has measured two more cells.
func killAmidst(t *testing.T, cmd *exec.Cmd, dir string, after time.Duration) {
	t.Helper()
	before := units(t, dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two cells are measured", func() bool { return units(t, dir) >= before+2 })
	time.Sleep(after)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // "signal: killed"
}

// units is how many lines the journal of a folder has, 0 before there is one.
func units(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, record.JournalFile))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// lines is how many lines results.txt has of each cell.
func lines(t *testing.T, dir string) map[string]int {
	t.Helper()
	all, err := record.ReadResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, one := range all {
		out[one.Name()]++
	}
	return out
}
