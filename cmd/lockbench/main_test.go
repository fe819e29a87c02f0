package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestMain(m *testing.M) {
	bench.Main()
	forgetKeptServers()
	plugintest.Main(m)
}

// forgetKeptServers makes tests ignore servers that the developer has started with "env up".
func forgetKeptServers() {
	os.Setenv("LOCKBENCH_STATE", filepath.Join(os.TempDir(), "lockbench-no-such-state"))
}

const timeout = 30 * time.Second

func plugins(t *testing.T) string {
	t.Helper()
	dir := ""
	for _, name := range []string{"memory", "redis"} {
		dir = filepath.Dir(plugintest.Build(t, "github.com/lockbench/lockbench/plugins/"+name+"/lockplugin-"+name))
	}
	return dir
}

func lockbench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	err := run(t.Context(), args, &out, &errs)
	complain(&errs, err)
	return exitCode(err), out.String(), errs.String()
}

// The ends function fails the test unless lockbench exits with the given code and writes all texts
// in wants. The character "|" separates these texts.
func ends(t *testing.T, code int, wants string, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := lockbench(t, args...)
	for want := range strings.SplitSeq(wants, "|") {
		if got != code || !strings.Contains(stdout+stderr, want) {
			t.Errorf("%q: exit %d, want %d and %q\n%s\n%s", args, got, code, want, stdout, stderr)
		}
	}
	return stdout, stderr
}

// promptly fails the test if lockbench takes longer than 10 s. Stalls of this process do not count.
func promptly(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	took := proc.Ran(func() { code, stdout, stderr = lockbench(t, args...) })
	if limit := 10 * time.Second; took > limit {
		t.Errorf("took %v, want %v", took, limit)
	}
	return code, stdout, stderr
}

func redisServer(t *testing.T, o *redisserver.Options) *servers.Server {
	t.Helper()
	s, err := redisserver.Start(t.Context(), o)
	servers.Keep(t, "redis", s, err)
	return s
}

func TestUsageErrors(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	t.Setenv("EMPTY", "")
	for _, tt := range []struct {
		args string // arguments, separated by "|"
		want []string
	}{
		{"rum", []string{`"rum"`, "did you mean run?"}},
		{"env|help", []string{`"help"`, "hint: lockbench env --help"}},
		{"help|chekc", []string{`"chekc"`, "did you mean check?"}},
		{"help|plugins|lst", []string{`"lst"`, "did you mean list?"}},
		{"completion|bsh", []string{`"bsh"`, "did you mean bash"}},
		{"run|--quik", []string{"--quik", "did you mean --quick?"}},
		{"run|--backends|redi", []string{`"redi"`, "did you mean redis?"}},
		{"run|--backends|", []string{"--backends names none"}},
		{"run|--scenarios|acquier", []string{`"acquier"`, "did you mean acquire?"}},
		{"run|--scenarios|safety,acquire", []string{`"safety"`, "acquire"}},
		{"faults|--faults|freeze-hst", []string{`"freeze-hst"`, "did you mean freeze-host?"}},
		{"faults|--faults|failover|--actions|kill-host", []string{"no fault is one of failover, kill-host"}},
		{"faults|--replay|reapr", []string{`"reapr"`, "did you mean reaper?"}},
		{"faults|--replay|nowhere.json", []string{"nowhere.json"}},
		{"faults|--replay|reaper|--backends|etcd", []string{"no reproducer is one of etcd"}},
		{"faults|--search|1m|--soak|1m", []string{"--search and --soak", "choose one"}},
		{"faults|--soak|0", []string{"a soak of 0s"}},
		{"faults|--search|1ms", []string{"a search of 1ms"}},
		{"faults|--runs|0", []string{"0 runs"}},
		{"run|--baselines=redislok", []string{`"redislok"`, "did you mean redislock or rueidislock?"}},
		{"run|--baselines|redislock", []string{`"redislock"`, "hint:", "--baselines=redislock"}},
		{"run|--format|jsn", []string{`"jsn"`, "did you mean json?"}},
		{"run|--mtls|no", []string{`"no"`, "on"}},
		{"run|--env|locl", []string{`"locl"`, "did you mean local?"}},
		{"run|--env|docker", []string{`"docker"; there are compose, local`}},
		{"run|--plugin-dir|nowhere", []string{"--plugin-dir nowhere"}},
		{"run|--clients|many", []string{"--clients", `"many"`, "whole numbers"}},
		{"run|--hosts|0", []string{"0 hosts are not between 1 and 64"}},
		{"run|--seed|-1", []string{"--seed", "at least 0"}},
		{"run|--ttl|0", []string{"--ttl 0", "hint:", "10s"}},
		{"run|--ttl|-1s", []string{"-1s", "minimum", "step 1ms", "maximum"}},
		{"run|--config|redis.adress=x", []string{`"adress"`, "did you mean address?"}},
		{"run|--config|rdis.address=x", []string{`"rdis"`, "did you mean redis?"}},
		{"run|--config|address=x", []string{"BACKEND.KEY=VALUE", "hint:"}},
		{"run|--target|rdis=localhost:1", []string{`"rdis"`, "did you mean redis?"}},
		{"run|--target|redis", []string{"BACKEND=ADDRESS", "hint:"}},
		{"run|--target|redis=env:EMPTY", []string{"redis", "not set"}},
		{"run|--target|redis=@nofile", []string{"nofile"}},
		{"run|--target|redis=redis://app:hush@localhost:1", []string{"password on the command line", "hint:", "env:"}},
		{"run|--target|redis=localhost:1?password=hush", []string{"password on the command line", "hint:"}},
		{"run|--target|mysql=app:hu,sh?hush@tcp(h)/d", []string{"mysql=", "hint:"}},
		{"run|-o|.", []string{"not empty", "hint:"}},
		{"run|-o|something", []string{"something"}},
		{"run|-o|something/below", []string{"something/below"}},
		{"run|-o|-", []string{"is not a folder", "hint:"}},
		{"merge|a|b|-o|-", []string{"is not a folder", "hint:"}},
		{"check|something", []string{"something"}},
		{"report|something", []string{"something"}},
		{"check", []string{"result folder", "hint:"}},
		{"check|nowhere", []string{"nowhere", "run.json"}},
		{"report|a|b", []string{"needs a result folder", "hint:"}},
		{"report|nowhere|-o|-|--format|json", []string{"-o -", "--format json", "hint:"}},
		{"compare", []string{"two result folders", "hint:"}},
		{"merge|a", []string{"two result folders", "hint:"}},
		{"merge|a|b", []string{"folder to write to", "hint:"}},
		{"merge|nowhere|elsewhere|-o|new", []string{"nowhere", "run.json"}},
		{"compare|a|b|--fail-on|p99-ns/acquire", []string{`"p99-ns/acquire"`, "hint:", "> +10%"}},
		{"lock|redis|a|--tick|0|--|true", []string{"--tick 0s"}},
		{"lock|redis|a|--conflict-exit-code|300|--|true", []string{"300", "0 to 255"}},
		{"locks|list", []string{"needs a backend"}},
		{"locks|list|memory", []string{"live in its plugin"}},
		{"locks|list|redis|--target|mysql=localhost", []string{`the backend is "redis"`}},
		{"locks|list|redis|--target|redis=redis://:hush@localhost:1", []string{"password on the command line"}},
		{"locks|inspect|redis", []string{"name of a lock"}},
		{"plugins|describe|redi", []string{`"redi"`, "did you mean redis?"}},
		{"conform|redis|--config|redis.adress=x", []string{`"adress"`, "did you mean address?"}},
	} {
		t.Run(tt.args, func(t *testing.T) {
			if err := os.WriteFile("something", nil, 0o600); err != nil {
				t.Fatal(err)
			}
			args := strings.Split(tt.args, "|")
			switch args[0] {
			case "run", "faults", "conform", "plugins":
				args = append(args, "--plugin-dir", dir)
			case "locks":
				if args[1] != "help" {
					args = append(args, "--plugin-dir", dir)
				}
			}
			code, stdout, stderr := lockbench(t, args...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "hint: ") {
				t.Errorf("not one line and a hint:\n%s", stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q does not say %q", stderr, want)
				}
			}
			if strings.Contains(stderr, "hush") {
				t.Errorf("the password is shown: %q", stderr)
			}
			if _, err := os.Stat("results"); err == nil {
				t.Error("a result folder was begun")
			}
		})
	}
}

func TestEnvironmentErrors(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	s := redisServer(t, &redisserver.Options{Password: "right"})
	frozen := redisServer(t, nil)
	if err := frozen.Freeze(); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, but never answers
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	t.Setenv("WRONG", "redis://:hush@"+s.Addr())
	t.Setenv("DOWN", "redis://:hush@127.0.0.1:1")
	t.Setenv("BAD", "http://:hush@"+s.Addr())
	for _, tt := range []struct {
		name, target string
		want         []string
	}{
		{"down", "127.0.0.1:1", []string{"127.0.0.1:1", "refused"}},
		{"down with a secret", "env:DOWN", []string{"127.0.0.1:1", "refused"}},
		{"wrong password", "env:WRONG", []string{s.Addr(), "password"}},
		{"bad URL", "env:BAD", []string{s.Addr(), "http"}},
		{"frozen", frozen.Addr(), []string{frozen.Addr()}},
		{"silent", silent.Addr().String(), []string{silent.Addr().String()}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := promptly(t, "run", "--quick", "--backends", "redis", "--target", "redis="+tt.target, "--plugin-dir", dir)
			if code != exitEnvironment || stdout != "" {
				t.Errorf("exit %d, stdout %q", code, stdout)
			}
			for _, want := range append(tt.want, "redis") {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q does not say %q", stderr, want)
				}
			}
			if strings.Contains(stderr, "hush") {
				t.Errorf("the password is shown: %q", stderr)
			}
		})
	}
}

func TestNoServerInstalled(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir())
	ends(t, exitEnvironment, "apt-get install redis-server|brew install redis", "run", "--backends", "redis", "--plugin-dir", dir)
	ends(t, exitOK, "memory (plugin)|left out: redis: redis-server is not installed", "run", "--quick", "--runs", "1", "--clients", "2", "--plugin-dir", dir)
}

func TestNoPlugins(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", t.TempDir())
	for _, args := range [][]string{{"run"}, {"plugins", "list"}, {"conform", "redis"}} {
		ends(t, exitEnvironment, "hint: make build", args...)
	}
}

func TestNotAPlugin(t *testing.T) {
	t.Chdir(t.TempDir())
	sh, err := exec.LookPath("true")
	if err != nil {
		t.Skip(err)
	}
	for _, path := range []string{sh, "./nothing"} {
		ends(t, exitEnvironment, filepath.Base(path), "conform", path)
	}
}

func TestPluginsListAndDescribe(t *testing.T) {
	dir := plugins(t)
	ends(t, exitOK, "memory|"+filepath.Join(dir, "lockplugin-redis")+", version ", "plugins", "list", "--plugin-dir", dir)
	for _, name := range []string{"redis", filepath.Join(dir, "lockplugin-redis")} {
		ends(t, exitOK, "address|secret|durable", "plugins", "describe", name, "--plugin-dir", dir)
	}
}

func TestInterrupted(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		defer cancel()
		for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			text, err := os.ReadFile(filepath.Join("out", "results.txt"))
			if err == nil && bytes.Count(text, []byte("BenchmarkAcquire/")) > 1 {
				return
			}
		}
	})
	var stdout, stderr bytes.Buffer
	err := run(ctx, []string{"run", "--quick", "--runs", "1000", "--clients", "2", "--backends", "memory", "-o", "out", "--plugin-dir", dir}, &stdout, &stderr)
	if code := exitCode(err); code != exitInterrupted {
		t.Fatalf("exit %d: %v", code, err)
	}
	if stderr := stderr.String(); strings.Count(stderr, "\n") > 2 || !strings.HasPrefix(stderr, "2000 cells, about ") {
		t.Errorf("without a terminal, progress is %q", stderr)
	}
	if !strings.HasPrefix(stdout.String(), "INCOMPLETE: the run was interrupted;") || !strings.Contains(stdout.String(), "memory (plugin)") {
		t.Errorf("stdout %q", stdout.String())
	}
	ends(t, exitOK, "no two holders at once", "check", "out")
}
