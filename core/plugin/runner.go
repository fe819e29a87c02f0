package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin/runner"

	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/proc"
)

// lifelineFd is the number of the lifeline in the plugin: the first of
// exec.Cmd's ExtraFiles.
const lifelineFd = 3

// drainFor is how long the output of a process that ended is still read: its
// child may hold the other end for ever.
const drainFor = 250 * time.Millisecond

// osProcess is one run of a plugin binary, from go-plugin's point of view. The host
// starts it itself, because go-plugin passes its standard input and process group
// on to a plugin, gives it no lifeline, and waits for a process without a limit.
type osProcess struct {
	path     string
	dir      *socketDir // ours to remove
	log      *lineLog
	lifeline *os.File // the host's end; the plugin sees its end when the host dies

	mu      sync.Mutex
	killed  bool // set even if it was not started yet
	reaped  bool // after this its number may belong to another process
	cmd     *exec.Cmd
	id      int         // 0 before the start
	behind  *os.Process // the process that serves in its place, when it is a wrapper
	stdout  *firstLine
	exited  chan struct{} // closed when the process was reaped
	drained chan struct{} // closed when its stderr was read to the end
}

func newOSProcess(path string, dir *socketDir, log *lineLog) *osProcess {
	return &osProcess{path: path, dir: dir, log: log, exited: make(chan struct{}), drained: make(chan struct{})}
}

// adopt is goplugin.ClientConfig.RunnerFunc: spec has the environment.
func (p *osProcess) adopt(_ hclog.Logger, spec *exec.Cmd, _ string) (runner.Runner, error) {
	cmd := exec.Command(p.path)
	cmd.Env = append(spec.Env,
		fmt.Sprintf("%s=%d", wire.EnvLifeline, lifelineFd),
		fmt.Sprintf("%s=%d", wire.EnvHostPid, os.Getpid()),
		fmt.Sprintf("%s=%s", wire.EnvDir, p.dir.path),
	)
	if own, ok := proc.Of(os.Getpid()); ok {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s", wire.EnvHostStart, own.Start))
	}
	// A terminal's Ctrl-C is for the host, which still needs its plugin. And a
	// group can be killed as a whole, with a wrapper and the wrapper's children.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = cmd
	return p, nil
}

// Start implements runner.Runner.
func (p *osProcess) Start(context.Context) error {
	stdout, stdoutW, outErr := os.Pipe()
	stderr, stderrW, errErr := os.Pipe()
	lifelineR, lifeline, err := os.Pipe()
	err = cmp.Or(outErr, errErr, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.killed {
		err = context.Canceled
	}
	if err == nil {
		p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = stdoutW, stderrW, []*os.File{lifelineR}
		err = p.cmd.Start()
	}
	closeAll(stdoutW, stderrW, lifelineR)
	if err != nil {
		closeAll(stdout, stderr, lifeline)
		return err
	}
	p.id, p.stdout, p.lifeline = p.cmd.Process.Pid, &firstLine{File: stdout}, lifeline
	go p.reap(stderr)
	go func() {
		defer close(p.drained)
		p.log.read(stderr)
		stderr.Close()
	}()
	return nil
}

// reap waits for the process; the goroutine that waits for exited owns it.
func (p *osProcess) reap(stderr *os.File) {
	p.wait()
	if p.status() == nil {
		_ = p.cmd.Process.Release() // it closes a descriptor, and does not fail
	}
	p.mu.Lock()
	p.forgetBehind()
	p.mu.Unlock()
	p.lifeline.Close()
	// A closed pipe has no deadline, and needs none.
	_ = p.stdout.SetReadDeadline(time.Now().Add(drainFor))
	_ = stderr.SetReadDeadline(time.Now().Add(drainFor))
	close(p.exited)
}

// finish runs cmd, which leads a group, to its end or that of ctx, and ends the rest
// of the group. Its error is the error of the start; status has the rest.
func (p *osProcess) finish(ctx context.Context, cmd *exec.Cmd) error {
	p.mu.Lock()
	p.cmd = cmd
	err := ctx.Err()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		p.id = cmd.Process.Pid
	}
	p.mu.Unlock()
	if err == nil {
		// Note: cmd has no context of its own. Its Wait, under p.mu, would wait for kill.
		stop := context.AfterFunc(ctx, p.kill)
		defer stop()
		p.wait()
	}
	return err
}

// kill ends the process and its children with SIGKILL, or keeps it from
// being started. It may be called at any time, and does not wait.
func (p *osProcess) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killed = p.killed || !p.reaped
	p.end()
}

func (p *osProcess) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.id
}

// status says how the process ended, once exited is closed. It is nil when
// that is not known: the host ignores SIGCHLD, or waits for all its
// children, as the first process of a container does.
func (p *osProcess) status() *os.ProcessState { return p.cmd.ProcessState }

// byItself reports, once exited is closed, whether the process ended without being killed by us.
func (p *osProcess) byItself() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status() == nil {
		return !p.killed
	}
	status, ok := p.status().Sys().(syscall.WaitStatus)
	return !p.killed || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL
}

// crashed reports, once exited is closed, whether the process may have
// printed why it ended: no signal ended it, as far as we know.
func (p *osProcess) crashed() bool { return p.status() == nil || p.status().Exited() }

// succeeded reports, once exited is closed, whether its status was 0.
func (p *osProcess) succeeded() bool { return p.status() != nil && p.status().Success() }

// outcome says how the process ended, once exited is closed: "exit status 3".
func (p *osProcess) outcome() string {
	if p.status() == nil {
		return "unknown: the host itself reaped it"
	}
	return p.status().String()
}

func (p *osProcess) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Wait implements runner.AttachedRunner; go-plugin calls it when it has read
// standard output to the end.
func (p *osProcess) Wait(context.Context) error {
	<-p.exited
	p.stdout.Close()
	return nil
}

// Kill implements runner.AttachedRunner. go-plugin calls it after a failed
// start too. A process that is ending by itself is left to end, so that its
// status gives the reason.
func (p *osProcess) Kill(context.Context) error {
	if p.pid() != 0 {
		waitFor(p.exited, exitMoment)
	}
	p.kill()
	return nil
}

// ID implements runner.AttachedRunner.
func (p *osProcess) ID() string { return strconv.Itoa(p.pid()) }

// Stdout implements runner.Runner.
func (p *osProcess) Stdout() io.ReadCloser { return p.stdout }

// Stderr implements runner.Runner. Note: go-plugin's reader of log lines
// panics on a line such as {"@message":1}; we read standard error ourselves.
func (p *osProcess) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *osProcess) Name() string { return p.path }

// Diagnose implements runner.Runner; [launcher.diagnose] knows more.
func (p *osProcess) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.AddrTranslator.
func (p *osProcess) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (p *osProcess) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// inherited lists the variables of the host that a plugin gets: those that a
// network client and the Go runtime need. All other variables of the host,
// which often hold secrets, are withheld.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GORACE", "GOCOVERDIR",
	wire.EnvCPUProfile, wire.EnvTrace,
}

// environ returns the environment of a plugin, without go-plugin's additions.
func environ(extra []string) []string {
	var env []string
	for _, key := range inherited {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return append(env, extra...)
}

// servedBy notes the process at the other end of conn. If the host has
// started a wrapper, that is another process, which may have left the
// process group: an init gives its child a new session.
func (p *osProcess) servedBy(conn net.Conn) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return
	}
	pid := frame.Peer(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	if pid == 0 || pid == p.id || p.behind != nil {
		return
	}
	behind, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	// Without a handle its number may belong to another process when it is used;
	// and only a process that was started for this host may be ended.
	if behind.WithHandle(func(uintptr) {}) != nil || !p.startedForUs(pid) {
		_ = behind.Release() // it does not fail
		return
	}
	if p.behind = behind; p.killed || p.reaped {
		p.end()
	}
	if p.reaped {
		p.forgetBehind()
	}
}

// forgetBehind lets go of a process that has been ended. The caller holds mu.
func (p *osProcess) forgetBehind() {
	if p.behind != nil {
		_ = p.behind.Release() // it does not fail
		p.behind = nil
	}
}

// startedForUs reports whether a process has this host's socket directory in its
// environment. Only the plugin and the processes that it has started have it.
func (p *osProcess) startedForUs(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains("\x00"+string(env), "\x00"+wire.EnvDir+"="+p.dir.path+"\x00")
}

// end ends all processes of the plugin. The caller holds mu.
func (p *osProcess) end() {
	if p.id != 0 && !p.reaped {
		killGroup(p.cmd.Process)
	}
	if p.behind != nil {
		_ = p.behind.Kill() // Kill fails only when the process has ended
	}
}

// stopped reports whether a signal has stopped the plugin, or its wrapper.
func (p *osProcess) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return isStopped(p.id) || p.behind != nil && isStopped(p.behind.Pid)
}

// isStopped reports whether a signal has stopped the process.
func isStopped(pid int) bool {
	s, ok := proc.Of(pid)
	return ok && s.Stopped()
}
