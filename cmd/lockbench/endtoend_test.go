package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench"
)

// TestRunCheckReport measures a real server, and then checks and reports the result folder.
func TestRunCheckReport(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	stdout, _ := ends(t, exitOK, "redislock|rueidislock|go-redis-pipelined|memory (plugin)|redis (plugin)|no appendonly|durable|acquire / redislock|redis-ping|plugin-call|4 clients|seed 7|safe:",
		"run", "--quick", "--runs", "2", "--clients", "1,4", "--baselines=redislock,rueidislock,go-redis-pipelined", "--seed", "7",
		"--target", "redis="+s.Addr(), "-o", "out", "--plugin-dir", dir)
	checkManifest(t)
	t.Run("check", func(t *testing.T) {
		code, stdout, stderr := lockbench(t, "check", "out")
		if code != exitOK || !strings.HasPrefix(stdout, "safe: ") || !strings.Contains(stdout, "redis ") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
	})
	t.Run("report", func(t *testing.T) {
		code, again, _ := lockbench(t, "report", "out")
		if code != exitOK || again != stdout {
			t.Errorf("exit %d; the text differs from that of the run:\n%s", code, again)
		}
		page, err := os.ReadFile(filepath.Join("out", bench.PageFile))
		if err != nil || !strings.Contains(string(page), "redis (plugin)") {
			t.Errorf("page %q, %v", page, err)
		}
		code, text, _ := lockbench(t, "report", "out", "--format", "json", "-o", "page.html")
		var doc map[string]any
		if err := json.Unmarshal([]byte(text), &doc); code != exitOK || err != nil {
			t.Errorf("exit %d, %v", code, err)
		}
		if _, err := os.Stat("page.html"); err != nil {
			t.Error(err)
		}
		code, printed, stderr := lockbench(t, "report", "out", "-o", "-")
		if code != exitOK || printed != string(page) || stderr != "" {
			t.Errorf("-o -: exit %d, %d bytes instead of %d, %q", code, len(printed), len(page), stderr)
		}
		if _, err := os.Stat("-"); err == nil {
			t.Error("-o - has written a file")
		}
	})
	t.Run("the folder is not used again", func(t *testing.T) {
		ends(t, exitUsage, "not empty", "run", "-o", "out", "--plugin-dir", dir)
	})
}

type runJSON struct {
	State, Failure string
	Plan           struct {
		Seed uint64
		Env  string
	}
	Machine struct {
		Cores int
		Go    string
	}
	Subjects    []struct{ Name, Server, Reference string }
	Binaries    map[string]string          `json:"binaries_sha256"`
	Failed      []struct{ Backend string } `json:"failed_cells"`
	MachineLoad map[string]any             `json:"machine_load"`
	Notes       []string
}

func manifest(t *testing.T, dir string) (m runJSON) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && strings.Contains(string(text), host) {
		t.Error("run.json names this machine")
	}
	return m
}

func checkManifest(t *testing.T) {
	t.Helper()
	m := manifest(t, "out")
	if m.State != "done" || m.Plan.Seed != 7 || m.Machine.Cores == 0 || m.Machine.Go == "" {
		t.Errorf("%+v", m)
	}
	for _, s := range m.Subjects {
		if s.Name == "redis" && (!strings.HasPrefix(s.Server, "Redis ") && !strings.HasPrefix(s.Server, "Valkey ") || s.Reference != "redislock") {
			t.Errorf("%+v", s)
		}
	}
	for _, binary := range []string{"lockplugin-redis", "lockplugin-memory"} {
		if len(m.Binaries[binary]) != 64 {
			t.Errorf("checksum of %s: %q", binary, m.Binaries[binary])
		}
	}
}

// TestOverHosts measures with callers in several host processes.
func TestOverHosts(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	stdout, _ := ends(t, exitOK, "", "run", "--quick", "--runs", "1", "--scenarios", "contend,throughput", "--backends", "redis,memory",
		"--hosts", "1,2", "--clients", "2", "--target", "redis="+s.Addr(), "--format", "json", "-o", "out", "--plugin-dir", dir)
	figures := regexp.MustCompile(`\s+`).ReplaceAllString(stdout, "")
	for figure, want := range map[string]bool{
		`"scenario":"contend","backend":"redis","hosts":2`:    true,
		`"scenario":"contend","backend":"memory"`:             true,
		`"scenario":"throughput","backend":"redis","hosts":2`: true,
		`"backend":"memory","hosts":2`:                        false, // its store lives in one process
	} {
		if strings.Contains(figures, figure) != want {
			t.Errorf("%s: want %v\n%s", figure, want, stdout)
		}
	}
	manifest, err := os.ReadFile("out/run.json")
	if err != nil || !strings.Contains(string(manifest), "memory, whose store belongs to one host process and is not seen by others, in scenario throughput") {
		t.Errorf("what was left out is not told: %v\n%s", err, manifest)
	}
}
