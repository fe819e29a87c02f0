package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchfmt"

	"github.com/lockbench/lockbench/internal/baseline"
	"github.com/lockbench/lockbench/internal/record"
)

// baselinesOf names the baselines that are measured on the server of a backend.
func baselinesOf(backend string) (names []string) {
	for _, b := range baseline.All() {
		if b.Backend == backend {
			names = append(names, b.Name)
		}
	}
	return names
}

// TestRunCheckReport measures for real, and then does with the folder what a
// user does.
func TestRunCheckReport(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "2", "--clients", "1,4", "--baselines", "--seed", "7",
		"--target", "redis="+s.Addr(), "-o", "out", "--plugin-dir", dir)
	if code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	for _, want := range append(baselinesOf("redis"), "memory (plugin)", "redis (plugin)", "no appendonly", "durable", "acquire / redislock",
		"redis-ping", "plugin-call", "4 clients", "seed 7", "safe:") {
		if !strings.Contains(stdout, want) {
			t.Errorf("the table does not show %q:\n%s", want, stdout)
		}
	}
	checkManifest(t)
	checkBenchmarks(t)
	t.Run("check", func(t *testing.T) {
		code, stdout, stderr := lockbench(t, "check", "out")
		if code != exitOK || !strings.Contains(stdout, "redis ") || strings.Contains(stdout, "1 overlaps") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
	})
	t.Run("report", func(t *testing.T) {
		code, again, _ := lockbench(t, "report", "out")
		if code != exitOK || again != stdout {
			t.Errorf("exit %d; the text differs from that of the run:\n%s", code, again)
		}
		page, err := os.ReadFile(filepath.Join("out", record.ReportFile))
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
		if code, _, stderr := lockbench(t, "run", "-o", "out", "--plugin-dir", dir); code != exitUsage || !strings.Contains(stderr, "not empty") {
			t.Errorf("exit %d, %q", code, stderr)
		}
	})
}

func checkManifest(t *testing.T) {
	t.Helper()
	m, err := record.ReadManifest("out")
	if err != nil {
		t.Fatal(err)
	}
	if m.State != record.StateDone || m.Plan.Seed != 7 || m.Machine.Cores == 0 || m.Machine.Go == "" {
		t.Errorf("%+v", m)
	}
	if r := m.Subject("redis"); !strings.HasPrefix(r.Server, "Redis ") && !strings.HasPrefix(r.Server, "Valkey ") || r.Reference != "redislock" {
		t.Errorf("%+v", r)
	}
	for _, binary := range []string{"lockplugin-redis", "lockplugin-memory"} {
		if len(m.Binaries[binary]) != 64 {
			t.Errorf("checksum of %s: %q", binary, m.Binaries[binary])
		}
	}
	b, err := os.ReadFile(filepath.Join("out", record.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && strings.Contains(string(b), host) {
		t.Error("run.json names this machine")
	}
}

// checkBenchmarks reads results.txt as benchstat does.
func checkBenchmarks(t *testing.T) {
	t.Helper()
	f, err := os.Open(filepath.Join("out", record.ResultsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := map[string]int{}
	r := benchfmt.NewReader(f, record.ResultsFile)
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			seen[rec.Name.String()]++
			for _, v := range rec.Values {
				if v.Value < 0 || v.Value == 0 && !slices.Contains([]string{"drops", "open-refused"}, v.Unit) {
					t.Errorf("%s: %v %s", rec.Name, v.Value, v.Unit)
				}
			}
		}
	}
	for _, name := range []string{"Acquire/backend=redis/clients=4", "Acquire/backend=redislock/clients=1", "Floor/backend=redis-ping/clients=1"} {
		if seen[name] != 2 {
			t.Errorf("%s has %d lines, want one for each run: %v", name, seen[name], seen)
		}
	}
}

// planted writes a folder in which a backend's two callers hold a lock at
// once, or nothing at all.
func planted(t *testing.T, kind record.Kind, attempts ...record.Attempt) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	f, err := record.Create(dir, record.Manifest{Started: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	s := record.Section{Backend: "redis", Kind: kind, Fencing: "durable", Scenario: "acquire", Run: 1, Names: []string{"jobs"}}
	if err := f.Add(record.Cell{Section: s, Attempts: attempts}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(record.StateDone); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheckJudges(t *testing.T) {
	first := record.Attempt{Asked: 0, Answered: 1e6, Ended: 5e6, Done: 6e6, Token: 7, Outcome: record.Granted, End: record.EndReleased}
	within := record.Attempt{Client: 1, Asked: 0, Answered: 2e6, Ended: 3e6, Done: 4e6, Token: 8, Outcome: record.Granted, End: record.EndReleased}
	after := record.Attempt{Client: 1, Asked: 7e6, Answered: 8e6, Ended: 9e6, Done: 10e6, Token: 7, Outcome: record.Granted, End: record.EndReleased}
	for _, tt := range []struct {
		name   string
		folder string
		code   int
		want   []string
	}{
		{"overlap", planted(t, record.KindPlugin, first, within), exitUnsafe,
			[]string{"overlap: redis", `"jobs"`, "caller 0", "caller 1", "1ms", "2ms", "1 overlaps"}},
		{"token repeats", planted(t, record.KindPlugin, first, after), exitUnsafe, []string{"token: redis", "token 7", "1 tokens"}},
		{"overlap of a baseline", planted(t, record.KindBaseline, first, within), exitOK, []string{"overlap: redis"}},
		{"nothing", planted(t, record.KindPlugin), exitInvalid, nil},
		{"one grant", planted(t, record.KindPlugin, first), exitOK, []string{"0 overlaps"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, format := range []string{"text", "json"} {
				code, stdout, stderr := lockbench(t, "check", tt.folder, "--format", format)
				if code != tt.code {
					t.Errorf("%s: exit %d, want %d: %q", format, code, tt.code, stderr)
				}
				for _, want := range tt.want {
					if format == "text" && !strings.Contains(stdout, want) {
						t.Errorf("%q does not say %q", stdout, want)
					}
				}
			}
		})
	}
}

// TestOverHosts spreads the callers over processes.
func TestOverHosts(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, nil)
	code, stdout, stderr := lockbench(t, "run", "--quick", "--runs", "1", "--scenarios", "contend,throughput", "--backends", "redis,memory",
		"--hosts", "1,2", "--clients", "2", "--target", "redis="+s.Addr(), "--format", "json", "-o", "out", "--plugin-dir", dir)
	if code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	var doc struct {
		Figures []struct {
			Scenario, Backend, Kind, Mode, Unit string
			Hosts, Clients                      int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	var figures strings.Builder
	for _, f := range doc.Figures {
		fmt.Fprintf(&figures, "%s,%s,%s,%s,%d,%d,%s\n", f.Scenario, f.Backend, f.Kind, f.Mode, f.Hosts, f.Clients, f.Unit)
	}
	for _, want := range []string{"contend,redis,plugin,forced,0,2,p50-ns/handoff", "contend,redis,plugin,forced,2,2,p50-ns/handoff",
		"contend,redis,plugin,forced,2,2,commands/grant", "contend,redis,plugin,forced,2,2,jain", "contend,memory,plugin,forced,0,2,jain",
		"throughput,redis,plugin,,0,2,cycles/s", "throughput,redis,plugin,,2,2,cycles/s", "throughput,redis,plugin,,2,2,p50-ns/acquire"} {
		if !strings.Contains(figures.String(), want) {
			t.Errorf("no figure %s:\n%s", want, figures.String())
		}
	}
	for _, shared := range []string{"contend,memory,plugin,forced,2", "throughput,memory,plugin,,2"} {
		if strings.Contains(figures.String(), shared) {
			t.Error("a store that belongs to one process was shared: " + shared)
		}
	}
	manifest, err := os.ReadFile("out/run.json")
	if err != nil || !strings.Contains(string(manifest), "memory, whose store belongs to one host process and is not seen by others, in scenario throughput") {
		t.Errorf("what was left out is not told: %v\n%s", err, manifest)
	}
}
