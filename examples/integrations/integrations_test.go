package integrations_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

const timeout = 30 * time.Second

const workerArg = "integration-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 6 && os.Args[1] == workerArg {
		if err := work(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// rounds returns the number of times that a worker is killed.
func rounds() int {
	if os.Getenv("LOCKBENCH_LONG") == "1" {
		return 20
	}
	return 2
}

// TestIntegrations runs each integration in two processes with one Redis. A job takes longer than
// the TTL. The test kills the process that runs a job, and the other process must run the next job.
func TestIntegrations(t *testing.T) {
	plugins, err := filepath.Abs("../../bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(plugins, "lockplugin-redis")); err != nil {
		t.Fatal("the integrations use the plugins in bin: run make build first:", err)
	}
	for name := range loops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := redisserver.Start(t.Context(), nil)
			servers.Keep(t, "redis", server, err)
			journal := filepath.Join(t.TempDir(), "journal")
			if err := os.WriteFile(journal, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			a := &application{name: name, args: []string{workerArg, name, plugins, server.Addr(), journal}, journal: journal}
			a.workers = []*exec.Cmd{a.start(t), a.start(t)}
			a.play(t)
		})
	}
}

type application struct {
	name    string
	args    []string
	journal string
	workers []*exec.Cmd
	killed  []int
}

func (a *application) start(t *testing.T) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, a.args...)
	cmd.Stderr = os.Stderr
	from := len(a.lines(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended already
		_ = cmd.Wait()
	})
	a.await(t, from, "ready") // before that, SIGTERM would just kill the worker
	return cmd
}

// play repeatedly kills the process that runs a job. At the end it sends SIGTERM to both processes.
func (a *application) play(t *testing.T) {
	for round := range rounds() {
		from := len(a.lines(t))
		// First let one job end without a kill. The job takes longer than the TTL.
		ended := a.await(t, from, "end")
		pid := a.await(t, ended.at+1, "start").pid
		for i, w := range a.workers {
			if w.Process.Pid != pid {
				continue
			}
			a.killed = append(a.killed, pid)
			if err := w.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = w.Wait() // the process was killed
			a.await(t, len(a.lines(t)), "start")
			a.workers[i] = a.start(t)
		}
		if len(a.killed) != round+1 {
			t.Fatalf("process %d, which is at a job, is none of the workers", pid)
		}
	}
	for _, w := range a.workers {
		if err := w.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range a.workers {
		if err := w.Wait(); err != nil {
			t.Errorf("a worker ended with %v", err)
		}
	}
	a.check(t)
}

type line struct {
	what  string
	pid   int
	token uint64
	at    int // the line's number in the journal
}

func (a *application) lines(t *testing.T) (all []line) {
	t.Helper()
	text, err := os.ReadFile(a.journal)
	if err != nil {
		t.Fatal(err)
	}
	for s := range strings.Lines(string(text)) {
		l := line{at: len(all)}
		if _, err := fmt.Sscan(s, &l.what, &l.pid, &l.token); err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		all = append(all, l)
	}
	return all
}

// await skips the given number of lines of the journal, and waits for a line with the event what.
// It returns this line.
func (a *application) await(t *testing.T, from int, what string) line {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		all := a.lines(t)
		for _, l := range all[min(from, len(all)):] {
			if l.what == what {
				return l
			}
		}
	}
	t.Fatalf("nobody has come to %s in %v:\n%v", what, timeout, a.lines(t))
	return line{}
}

// check fails if two jobs overlap or if a token is lower than an earlier token. Every job that
// starts must end, unless its process was killed. After a kill, another process must start a job.
func (a *application) check(t *testing.T) {
	t.Helper()
	var at *line
	var last uint64
	killed, done := a.killed, 0
	for _, l := range a.lines(t) {
		switch {
		case l.what == "ready":
		case l.what == "start" && at != nil:
			if len(killed) == 0 || killed[0] != at.pid {
				t.Errorf("process %d began a job while %d was at one", l.pid, at.pid)
			} else {
				killed = killed[1:]
			}
			at = &l
		case l.what == "start":
			at = &l
		case at == nil || at.pid != l.pid:
			t.Errorf("process %d ended a job that it had not begun", l.pid)
		default:
			at = nil
			done++
		}
		if l.what == "start" && l.token != 0 {
			if l.token < last || l.token == last && a.name != "gocron-elector" { // a term has many jobs
				t.Errorf("token %d after %d", l.token, last)
			}
			last = l.token
		}
	}
	if at != nil {
		t.Errorf("process %d has not ended its job", at.pid)
	}
	if len(killed) > 0 {
		t.Errorf("nobody has begun again what %v were killed at", killed)
	}
	t.Logf("%d killed at work, %d jobs done once each", len(a.killed), done)
}
