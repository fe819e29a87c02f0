// Package examples_test runs the examples as processes on real
// servers, as users do. It ends some of the processes with SIGKILL.
package examples_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// If long is true, the tests run for as long as the runs that measured the READMEs' figures.
var long = os.Getenv("LOCKBENCH_LONG") == "1"

const timeout = 60 * time.Second

var (
	programs string // directory of the examples' binaries
	plugins  string // directory of the plugins
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if programs, err = os.MkdirTemp("", "examples-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(programs)
		build := exec.Command("go", "build", "-o", programs, "./scheduler", "./leadertask", "./coupons", "./fencedfile")
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make build does
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
			return 1
		}
		plugins, _ = filepath.Abs("../bin")
		if _, err := os.Stat(filepath.Join(plugins, "lockplugin-redis")); err != nil {
			fmt.Fprintln(os.Stderr, "the examples use the plugins in bin: run make build first:", err)
			return 1
		}
		return m.Run()
	}())
}

// system has the arguments that connect an example to one backend's server.
type system struct {
	backend string
	args    []string
}

var backends = []string{"redis", "redlock", "mysql", "postgres", "etcd"}

func start(t *testing.T, backend string) system {
	t.Helper()
	ctx := t.Context()
	var config string
	switch backend {
	case "redis":
		s, err := redisserver.Start(ctx, nil)
		servers.Keep(t, backend, s, err)
		config = "address=" + s.Addr()
	case "redlock":
		nodes, err := redisserver.StartNodes(ctx, 5, nil)
		servers.Keep(t, backend, nodes, err)
		config = "address=" + nodes.Addr() + "\nnode_timeout=100ms"
		if err := servers.Init(ctx, filepath.Join(plugins, "lockplugin-redlock"), "node_timeout=100ms", "address="+nodes.Addr()); err != nil {
			t.Fatal(err)
		}
	case "mysql":
		s, err := mysqlserver.Start(ctx, nil)
		servers.Keep(t, backend, s, err)
		config = "address=" + mysqlserver.Address(s)
	case "postgres":
		s, err := postgresserver.Start(ctx, nil)
		servers.Keep(t, backend, s, err)
		config = "address=" + postgresserver.Address(s)
	case "etcd":
		s, err := etcdserver.Start(ctx, nil)
		servers.Keep(t, backend, s, err)
		config = "address=" + s.Addr()
	}
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return system{backend, []string{"--backend", backend, "--config", file, "--plugin-dir", plugins}}
}

// process is one running example.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}

	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func (w system) run(t *testing.T, program string, args ...string) *process {
	t.Helper()
	return run(t, program, slices.Concat(args, w.args)...)
}

func run(t *testing.T, program string, args ...string) *process {
	t.Helper()
	p := &process{exited: make(chan struct{}), changed: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(programs, program), args...)
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		for scan := bufio.NewScanner(stdout); scan.Scan(); {
			p.add(scan.Text())
		}
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s %v printed\n%s\n%s", program, args, strings.Join(p.output(), "\n"), log)
		}
	})
	return p
}

func (p *process) add(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, line)
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// await skips the given number of lines of the output, and waits for a line that contains text. It
// returns this line and its number, counted from 1.
func (p *process) await(t *testing.T, from int, text string) (string, int) {
	t.Helper()
	end := time.After(timeout)
	for {
		p.mu.Lock()
		lines, changed := p.lines, p.changed
		p.mu.Unlock()
		for ; from < len(lines); from++ {
			if strings.Contains(lines[from], text) {
				return lines[from], from + 1
			}
		}
		select {
		case <-changed:
		case <-p.exited:
			if lines = p.output(); from == len(lines) {
				t.Fatalf("it ended (%v) before it printed %q", p.cmd.ProcessState, text)
			}
		case <-end:
			t.Fatalf("it has not printed %q within %v", text, timeout)
		}
	}
}

func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// terminate ends the process with SIGTERM. The test fails if the process ends with an error.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(timeout):
		t.Fatalf("it has not ended %v after SIGTERM", timeout)
	}
	if !p.cmd.ProcessState.Success() {
		t.Errorf("after SIGTERM it ended with %v", p.cmd.ProcessState)
	}
}

func each(t *testing.T, test func(t *testing.T, w system)) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, backend))
		})
	}
}

// TestExamples runs every example on every backend that has servers.
func TestExamples(t *testing.T) {
	each(t, func(t *testing.T, w system) {
		t.Run("scheduler", func(t *testing.T) { testScheduler(t, w) })
		t.Run("leadertask", func(t *testing.T) { testLeadertask(t, w) })
		t.Run("coupons", func(t *testing.T) { testCoupons(t, w) })
		t.Run("fencedfile", func(t *testing.T) { testFencedfile(t, w) })
	})
}
