package plugin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// exitMoment is the longest time that a failing plugin gets to exit by itself.
const exitMoment = 250 * time.Millisecond

// launch starts the plugin and configures it. If launch fails, it leaves no process and no file.
func (l *launcher) launch(ctx context.Context) (*process, error) {
	if err := l.verify(); err != nil {
		return nil, err
	}
	dir, err := newSocketDir()
	if err != nil {
		if exhausted(err) {
			return nil, l.failed(ErrExhausted, err)
		}
		return nil, fmt.Errorf("plugin %q: socket directory in TMPDIR or /tmp: %w", l.name, err)
	}
	lines := &lineLog{log: l.log, secrets: l.secrets}
	p := newProcess(newOSProcess(l.path, dir, lines))
	starting, cancel := context.WithTimeout(ctx, l.opts.StartTimeout)
	defer cancel()
	if err := l.start(starting, p); err != nil {
		// A dying process's connections break shortly before it exits, so wait for the exit.
		if p.run.pid() != 0 {
			waitFor(p.run.exited, exitMoment)
		}
		byItself := p.run.hasExited() && p.run.byItself()
		p.abort()
		return nil, l.diagnose(ctx, starting, p.run, byItself, err)
	}
	return p, nil
}

// start starts the process p, connects to it, configures it, and waits for its first heartbeat.
func (l *launcher) start(ctx context.Context, p *process) error {
	// go-plugin's functions take no ctx, but they return when the process is killed.
	stop := context.AfterFunc(ctx, p.run.kill)
	defer stop()
	config, err := l.clientConfig(p.run)
	if err != nil {
		return err
	}
	client := goplugin.NewClient(config)
	addr, err := client.Start()
	if err != nil {
		// After a failed Start, Kill only waits for go-plugin's goroutines. Note: never call Kill, Client
		// or Ping elsewhere. If the plugin is frozen, these methods never return. If the plugin is dead,
		// they leak a connection.
		client.Kill()
		return err
	}
	switch certified := config.TLSConfig.RootCAs != nil; {
	case certified && l.opts.NoMTLS:
		return l.fail(ErrNotPlugin, "it sends a certificate for mutual TLS: do not set the option NoMTLS")
	case !certified && !l.opts.NoMTLS:
		return l.fail(ErrNoMTLS, "set the option NoMTLS to talk to it without")
	}
	conn, err := dial(addr, config.TLSConfig, p.run.servedBy)
	if err != nil {
		return err
	}
	p.conn, p.unary = conn, wire.NewUnary(conn)
	p.link = p.unary
	c, err := p.unary.Configure(ctx, l.setup())
	if err != nil && !errors.Is(err, wire.ErrNoAnswer) {
		return refusal{err}
	}
	if err != nil {
		return err
	}
	if p.props = c.Properties; p.props.Name != l.name {
		return l.fail(ErrBackend, "%q was asked for, and it is %q", l.name, shorten(p.props.Name))
	}
	l.secrets.SetConfig(l.opts.Config, func(key, _ string) bool { return slices.Contains(c.SecretKeys, key) })
	if client.NegotiatedVersion() >= wire.VersionFramed {
		if err := l.connectData(ctx, p, c.DataSocket); err != nil {
			return err
		}
	}
	return p.openSession(ctx)
}

// connectData opens the data connection of protocol version 2. If the binary is a wrapper with the
// plugin as its child, the process that listens is not the process that this host started. It could
// be an impostor, so operations use protocol version 1, whose connection has mutual TLS.
func (l *launcher) connectData(ctx context.Context, p *process, path string) error {
	if !slices.Contains(p.props.Capabilities, driver.CapWithdraw) {
		return l.fail(ErrVersion, "its protocol has no Withdraw: take host and plugin from one release")
	}
	lost := func(err error) { p.giveUp(p.connectionError("data connection", err)) }
	data, err := frame.Dial(ctx, path, p.run.pid(), p.unary, lost)
	if errors.Is(err, frame.ErrPeer) {
		text := "plugin is used through protocol version 1, which is slower: a wrapper must exec it"
		l.log.add(slog.LevelWarn, text, len(text), slog.Any("err", err))
		return nil
	}
	if err != nil {
		return err
	}
	p.data, p.link = data, data
	return nil
}

// clientConfig returns go-plugin's configuration for starting the process. go-plugin's AutoMTLS is
// off, because its keys take long to make (see [wire.Certificate]).
func (l *launcher) clientConfig(run *osProcess) (*goplugin.ClientConfig, error) {
	env := environ(l.opts.Env)
	secure := new(tls.Config) // go-plugin adds the plugin's certificate to it, even if NoMTLS is set
	if !l.opts.NoMTLS {
		c, err := wire.NewCertificate()
		if err != nil {
			return nil, err
		}
		secure = c.Client()
		env = append(env, wire.EnvClientCert+"="+c.PEM())
	}
	versions := map[int]goplugin.PluginSet{}
	for _, v := range l.versions() {
		versions[v] = goplugin.PluginSet{}
	}
	return &goplugin.ClientConfig{
		HandshakeConfig:  wire.Handshake(),
		VersionedPlugins: versions,
		RunnerFunc: func(log hclog.Logger, spec *exec.Cmd, tmp string) (runner.Runner, error) {
			spec.Env = append(env, spec.Env...)
			return run.adopt(log, spec, tmp)
		},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		TLSConfig:        secure,
		StartTimeout:     l.opts.StartTimeout + time.Second, // never reached: ctx ends first
		SkipHostEnv:      true,
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: run.dir.path},
		// go-plugin needs no logger, because this package returns or logs the same facts.
		Logger: hclog.NewNullLogger(),
	}, nil
}

// dial returns a gRPC connection to a plugin. It calls the function connected with each network
// connection that it opens. Note: go-plugin's client would open two more streams, which this
// package does not need and cannot always close.
func dial(addr net.Addr, config *tls.Config, connected func(net.Conn)) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if config.RootCAs != nil {
		creds = credentials.NewTLS(config)
	}
	var d net.Dialer
	return grpc.NewClient("passthrough:///localhost", append(wire.DialOptions(),
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := d.DialContext(ctx, addr.Network(), addr.String())
			if err == nil {
				connected(conn)
			}
			return conn, err
		}))...)
}

// refusal is an error that the plugin returned from Configure.
type refusal struct{ error }

// diagnose returns an error that explains why a start failed with err. The start timeout ends the
// context in starting, not the one in caller. If this host killed the process, byItself is false.
func (l *launcher) diagnose(caller, starting context.Context, run *osProcess, byItself bool, err error) error {
	if refused, ok := errors.AsType[refusal](err); ok {
		return fmt.Errorf("plugin %q: %w", l.name, refused.error)
	}
	var open *OpenError
	switch line := run.firstLine(); {
	case errors.As(err, &open):
	case caller.Err() != nil:
		open = l.fail(ErrHung, "%v", caller.Err())
		open.Cause = caller.Err()
	case run.pid() == 0 && !errors.Is(err, context.Canceled): // there is no process, but not because ctx ended
		open = l.badBinary(err)
	case starting.Err() != nil:
		open = l.fail(ErrHung, "not ready within %v; it was killed", l.opts.StartTimeout)
	case line != "":
		open = l.badHandshake(line)
	case byItself && run.succeeded() && len(run.log.last()) == 0:
		open = l.fail(ErrNotPlugin, "it ended without a handshake")
	}
	if open == nil && byItself {
		open = l.fail(ErrCrashed, "%s", run.outcome())
	}
	if open == nil {
		open = l.badBinary(err)
	}
	open.Stderr = run.log.last()
	return open
}

func (l *launcher) badBinary(err error) *OpenError {
	reason := ErrNotPlugin
	switch {
	case errors.Is(err, syscall.EACCES) || errors.Is(err, os.ErrNotExist):
		reason = ErrNotExecutable // perhaps only its interpreter is missing
	case exhausted(err):
		reason = ErrExhausted
	}
	return l.failed(reason, err)
}

// badHandshake returns an error about the handshake line, or nil if the line is correct.
func (l *launcher) badHandshake(line string) *OpenError {
	fields := strings.Split(line, "|")
	core, coreErr := strconv.Atoi(fields[0])
	if len(fields) < 4 || coreErr != nil {
		return l.fail(ErrStdout, "%q", shorten(l.secrets.Text(line)))
	}
	version, versionErr := strconv.Atoi(fields[1])
	switch {
	case core != goplugin.CoreProtocolVersion:
		return l.fail(ErrVersion, "its handshake is version %d, ours %d", core, goplugin.CoreProtocolVersion)
	case versionErr != nil || !slices.Contains(l.versions(), version):
		return l.fail(ErrVersion, "it speaks version %s, this host versions %v", shorten(fields[1]), l.versions())
	case len(fields) < 5 || fields[4] != string(goplugin.ProtocolGRPC):
		return l.fail(ErrNotPlugin, "it does not speak gRPC: %q", shorten(line))
	}
	return nil
}

func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
