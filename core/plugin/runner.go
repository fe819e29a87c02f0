package plugin

import (
	"bufio"
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

// lifelineFd is the plugin's file descriptor for the lifeline, a pipe that ends when the host dies.
// exec.Cmd gives number 3 to the first file in its ExtraFiles field.
const lifelineFd = 3

// drainFor is the longest time that the host reads a process's output after the process has ended.
// There is a limit because a child of that process may keep the pipe open for ever.
const drainFor = 250 * time.Millisecond

// maxHandshake bounds the bytes that the host keeps of a plugin's first line on standard output.
const maxHandshake = 4 << 10

// osProcess is one run of a plugin binary. It replaces go-plugin's own runner. With that runner,
// the plugin would share the host's standard input and process group, and have no lifeline.
// go-plugin's runner also waits for the process without a time limit.
type osProcess struct {
	path     string
	dir      *socketDir // directory of this run's sockets; process.abort removes it
	log      *lineLog
	lifeline *os.File // the host's end of the pipe; the kernel closes it when the host dies

	mu      sync.Mutex
	killed  bool // the kill method was called, perhaps before the start
	reaped  bool // the process was waited for, so its number may now belong to another process
	cmd     *exec.Cmd
	id      int            // 0 before the start
	behind  *os.Process    // the process that serves, if the host started a wrapper
	stdout  *io.PipeReader // the first line of standard output
	line    string         // the same line, for launcher.diagnose
	exited  chan struct{}  // closed when the process was reaped
	drained chan struct{}  // closed when standard error was read to the end
	silent  chan struct{}  // closed when standard output was read to the end
}

func newOSProcess(path string, dir *socketDir, log *lineLog) *osProcess {
	return &osProcess{path: path, dir: dir, log: log, exited: make(chan struct{}), drained: make(chan struct{}), silent: make(chan struct{})}
}

// adopt implements goplugin.ClientConfig.RunnerFunc. It uses only the environment in spec.
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
	// Ctrl-C in a terminal must reach only the host, because a host that shuts down still uses its
	// plugin. So the plugin gets a separate process group. This group also allows osProcess.end to
	// kill a wrapper and its children together.
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
	first, firstW := io.Pipe()
	p.id, p.stdout, p.lifeline = p.cmd.Process.Pid, first, lifeline
	go p.reap(stdout, stderr)
	go p.readStdout(stdout, firstW)
	go func() {
		defer close(p.drained)
		p.log.read(stderr)
		stderr.Close()
	}()
	return nil
}

// closeAll skips nil files.
func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// readStdout passes the first line to go-plugin and discards the rest. Without it, go-plugin would
// stop reading at an overlong line, and the plugin would block for ever in a write to the full pipe.
func (p *osProcess) readStdout(stdout *os.File, first *io.PipeWriter) {
	defer close(p.silent)
	defer stdout.Close()
	// If the line is cut, it is too long for a handshake, and the start fails.
	line, _ := bufio.NewReaderSize(stdout, maxHandshake).ReadSlice('\n')
	p.mu.Lock()
	p.line = strings.TrimSpace(string(line))
	p.mu.Unlock()
	_, _ = first.Write(line) // go-plugin reads until the end
	first.Close()
	_, _ = io.Copy(io.Discard, stdout)
}

func (p *osProcess) reap(stdout, stderr *os.File) {
	p.wait()
	if p.status() == nil {
		_ = p.cmd.Process.Release() // closes a descriptor and cannot fail
	}
	p.mu.Lock()
	p.forgetBehind()
	p.mu.Unlock()
	p.lifeline.Close()
	// SetReadDeadline fails if the pipe is already closed, and then no deadline is needed.
	_ = stdout.SetReadDeadline(time.Now().Add(drainFor))
	_ = stderr.SetReadDeadline(time.Now().Add(drainFor))
	close(p.exited)
}

// finish runs cmd as the leader of a process group until cmd exits or ctx ends, and then kills the
// rest of that group (on Linux). The error says why cmd did not start. p.status says how cmd ended.
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
		// Note: exec.CommandContext would deadlock. p.wait calls cmd.Wait while it holds p.mu, and
		// cmd.Wait would wait for p.kill, which locks p.mu.
		stop := context.AfterFunc(ctx, p.kill)
		defer stop()
		p.wait()
	}
	return err
}

// kill sends SIGKILL to the process and its children. If the process has not started, kill prevents
// the start. It may be called at any time, and does not wait for the end of the process.
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

func (p *osProcess) firstLine() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line
}

// status returns how the process ended. p.exited must be closed. If the host ignores SIGCHLD
// or reaps all its children itself, the exit status is lost, and status returns nil.
func (p *osProcess) status() *os.ProcessState { return p.cmd.ProcessState }

// byItself reports whether the process ended before this host killed it. p.exited must be closed.
func (p *osProcess) byItself() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status() == nil {
		return !p.killed
	}
	status, ok := p.status().Sys().(syscall.WaitStatus)
	return !p.killed || !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL
}

// crashed returns false if the status says that a signal ended the process. Otherwise it
// returns true, and the process may have printed why it ended. p.exited must be closed.
func (p *osProcess) crashed() bool { return p.status() == nil || p.status().Exited() }

// succeeded reports whether the exit status was 0. p.exited must be closed.
func (p *osProcess) succeeded() bool { return p.status() != nil && p.status().Success() }

// outcome returns how the process ended, such as "exit status 3". p.exited must be closed.
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

// Wait implements runner.AttachedRunner. After a failed start, go-plugin's Kill waits for it.
func (p *osProcess) Wait(context.Context) error {
	<-p.exited
	<-p.silent
	return nil
}

// Kill implements runner.AttachedRunner. It first waits up to exitMoment for the process to exit.
// So if go-plugin calls Kill after a failed start, the exit status of a dying process is not lost.
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

// Stderr implements runner.Runner. Note: go-plugin's reader of log lines panics on a line such as
// {"@message":1}. So go-plugin gets an empty reader, and lineLog reads the real standard error.
func (p *osProcess) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

// Name implements runner.Runner.
func (p *osProcess) Name() string { return p.path }

// Diagnose implements runner.Runner. It returns "", because [launcher.diagnose] explains failures.
func (p *osProcess) Diagnose(context.Context) string { return "" }

// PluginToHost implements runner.AddrTranslator.
func (p *osProcess) PluginToHost(network, address string) (string, string, error) {
	return network, address, nil
}

// HostToPlugin implements runner.AddrTranslator.
func (p *osProcess) HostToPlugin(network, address string) (string, string, error) {
	return network, address, nil
}

// inherited lists the host's environment variables that a plugin gets. Network clients and the Go
// runtime need them. A plugin gets no other variable of the host, because many hold secrets.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GORACE", "GOCOVERDIR",
	wire.EnvCPUProfile, wire.EnvTrace,
}

// environ returns a plugin's environment. clientConfig, adopt and go-plugin add further variables.
func environ(extra []string) []string {
	var env []string
	for _, key := range inherited {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return append(env, extra...)
}

// servedBy sets p.behind to the process at the other end of conn, if a wrapper started that
// process. Some wrappers start their child in a new session, and so in another process group. With
// p.behind, the host can kill such a child too.
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
	// If the process has no pidfd, another process could get its id before the host kills it. And the
	// host must not kill a process that was not started for the host.
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

// forgetBehind gives up the handle in p.behind. The caller must hold mu.
func (p *osProcess) forgetBehind() {
	if p.behind != nil {
		_ = p.behind.Release() // it does not fail
		p.behind = nil
	}
}

// startedForUs reports whether the environment of process pid names this run's socket directory.
// Only the plugin and the processes that it started have this directory in their environment.
func (p *osProcess) startedForUs(pid int) bool {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && strings.Contains("\x00"+string(env), "\x00"+wire.EnvDir+"="+p.dir.path+"\x00")
}

// end kills the process group, and the process in p.behind. The caller must hold mu.
func (p *osProcess) end() {
	if p.id != 0 && !p.reaped {
		killGroup(p.cmd.Process)
	}
	if p.behind != nil {
		_ = p.behind.Kill() // Kill fails only if the process has ended
	}
}

// stopped reports whether a signal such as SIGSTOP has stopped the plugin or its wrapper.
func (p *osProcess) stopped() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return isStopped(p.id) || p.behind != nil && isStopped(p.behind.Pid)
}

func isStopped(pid int) bool {
	s, ok := proc.Of(pid)
	return ok && s.Stopped()
}
