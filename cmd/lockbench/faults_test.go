package main

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestFaults judges a saved result twice: unchanged, and with a violation that the test has added.
func TestFaults(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	redisServer(t, nil) // skips without a Redis server
	stdout, _ := ends(t, exitOK, "kill-host|redis    held|not run: memory under kill-host|safe:|lockbench faults --backends=",
		"faults", "--backends", "memory,redis", "--faults", "kill-host", "--runs", "1",
		"-o", "out", "--plugin-dir", dir)
	if code, again, _ := lockbench(t, "report", "out"); code != exitOK || again != stdout {
		t.Errorf("exit %d; the text differs from that of the run:\n%s", code, again)
	}
	ends(t, exitOK, "held", "check", "out")
	// Change the record, so that the killed holder's lease stays valid for one hour.
	path := filepath.Join("out", "rounds.jsonl")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	edited := regexp.MustCompile(`("host":0,"name":0,[^}]*"valid_ns":)\d+`).ReplaceAll(text, []byte("${1}3600000000000"))
	if err := os.WriteFile(path, edited, 0o644); err != nil {
		t.Fatal(err)
	}
	ends(t, exitUnsafe, "two holders at once|lock 0", "check", "out")
}

// TestReplay plays a reproducer, which is a recorded failure.
func TestReplay(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	redisServer(t, nil)
	const name = "standby-demoted-redis"
	ends(t, exitOK, "fixed in|Now: it broke a claim in 0 of 1 runs", "faults", "--replay", name, "--quick", "-o", "out", "--plugin-dir", dir)
	kept, err := os.ReadFile(filepath.Join("out", name+".json"))
	if err != nil || !strings.Contains(string(kept), `"runs": 1,`) || !strings.Contains(string(kept), `"shown": 0,`) {
		t.Errorf("%s, %v", kept, err)
	}
}

func TestSoak(t *testing.T) {
	dir := plugins(t)
	t.Chdir(t.TempDir())
	redisServer(t, nil)
	ends(t, exitOK, "memory: no claim was broken|redis: no claim was broken", "faults", "--soak", "5s", "--quick", "--backends", "memory,redis", "--seed", "1", "--plugin-dir", dir, "-v")
}

// Each mode, such as --search, must accept all flags that select no mode.
func TestFaultsFlagsFitEveryMode(t *testing.T) {
	values := map[string]string{
		"backends": "redis", "faults": "kill-host", "actions": "kill-host", "runs": "2", "seed": "7", "host-program": "lockbench",
		"format": "json", "output": "out", "mtls": "off", "config": "redis.prefix=x:", "plugin-dir": ".",
	}
	for _, mode := range []string{"--quick", "--search=1m", "--soak=1m", "--replay=all", "--list"} {
		faultsCommand().Flags().VisitAll(func(flag *pflag.Flag) {
			if strings.Contains(mode, flag.Name) || slices.Contains([]string{"search", "soak", "replay", "list", "help"}, flag.Name) {
				return
			}
			var f faultsFlags
			cmd := f.command()
			if err := cmd.ParseFlags([]string{mode, "--" + flag.Name + "=" + cmp.Or(values[flag.Name], "true")}); err != nil {
				t.Fatalf("%s with --%s: %v", mode, flag.Name, err)
			}
			p, err := f.plan(cmd)
			if err := errors.Join(err, p.Check()); err != nil {
				t.Errorf("%s with --%s: %v", mode, flag.Name, err)
			}
		})
	}
}

// Old command lines of "lockbench run" that injected faults must still inject them.
func TestOldSpellings(t *testing.T) {
	for line, want := range map[string]string{
		"--scenarios safety --quick --faults restart,evict":                 "--faults=restart --faults=evict --quick=true",
		"--scenarios explore --backends redis":                              "--search=10m0s --backends=redis",
		"--scenarios explore --for 30m --keep-going --seed 7 --actions cut": "--search=30m0s --actions=cut --keep-going=true --seed=7",
		"--reproducer r.json --recorder old --runs 3":                       "--host-program=old --replay=r.json --runs=3",
		"--scenarios throughput":                                            "",
	} {
		cmd := runCommand()
		if err := cmd.ParseFlags(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		args, old := faultsArgs(cmd)
		if got := strings.Join(args, " "); old != (want != "") || old && got != want {
			t.Errorf("%s: %v, %s", line, old, got)
		}
	}
	code, stdout, stderr := lockbench(t, "run", "--reproducer", "nowhere.json")
	if code != exitUsage || stdout != "" || !strings.Contains(stderr, "say lockbench faults --replay=nowhere.json\n") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}
