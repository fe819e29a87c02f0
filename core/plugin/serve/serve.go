package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// stopGrace is how long a closed plugin waits at most until its last replies are sent.
const stopGrace = 300 * time.Millisecond

// Main is the whole main function of a plugin. If a host has started the process,
// Main serves spec until the host closes the plugin or dies. Otherwise Main
// executes the command line: "describe [--json]", "--version" or a command of
// spec. Without arguments, Main prints what the program is. Main never returns.
//
// Call Main before all else. If a host has started the process, Main closes the descriptors that
// the process was started with, except the first three and the lifeline. On Linux it sets
// no_new_privs. For that, Main executes a program with cgo again, so code before Main runs twice.
func Main(spec driver.Spec) {
	if len(os.Args) == 1 && hostStartedUs() {
		os.Exit(serve(spec))
	}
	refusePrivileges()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, spec, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func hostStartedUs() bool {
	h := wire.Handshake()
	return os.Getenv(h.MagicCookieKey) == h.MagicCookieValue
}

// serve runs the plugin process and returns its exit code.
func serve(spec driver.Spec) int {
	shedInherited()
	// If SIGPIPE were not ignored, a log line to the pipe of a dead host would kill the plugin
	// before it has released the host's locks. The other signals come from a terminal or a service
	// manager, which signals plugin and host together, although the host still needs the plugin.
	// So only the host or its death ends the plugin.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	stderr := os.Stderr
	tune()
	p := newProcess(spec, stderr)
	p.stopProfiles = startProfiles(p.log)
	defer p.stopProfiles()
	parent, err := openLifeline(p.log)
	if err != nil {
		fmt.Fprintln(stderr, "lifeline:", err)
		return 1
	}
	p.lifeline = parent
	go parent.watch(p.hostDied, p.sessions.letGo)

	config, err := identity()
	if err != nil {
		fmt.Fprintln(stderr, "mutual TLS:", err)
		return 1
	}
	var server *grpc.Server
	go func() {
		<-p.closed
		stop(server)
	}()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: wire.Handshake(),
		TLSProvider:     func() (*tls.Config, error) { return config, nil },
		VersionedPlugins: map[int]goplugin.PluginSet{
			wire.VersionUnary:  {"lock": service{process: p, host: p}},
			wire.VersionFramed: {"lock": service{process: p, host: framed{p}}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server = grpc.NewServer(append(opts, wire.ServerOptions()...)...)
			return server
		},
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: stderr, JSONFormat: true}),
	})
	return p.exitCode()
}

// stop ends the server when its last replies were sent, but after stopGrace at the latest.
func stop(server *grpc.Server) {
	force := time.AfterFunc(stopGrace, server.Stop)
	defer force.Stop()
	server.GracefulStop()
}

// service registers the gRPC service of a process with go-plugin, for the
// protocol version that host and plugin have agreed on.
type service struct {
	goplugin.NetRPCUnsupportedPlugin
	process *process
	host    wire.Host
}

// GRPCServer implements goplugin.GRPCPlugin.
func (s service) GRPCServer(_ *goplugin.GRPCBroker, server *grpc.Server) error {
	wire.Register(server, s.host, s.process.redact, s.process.closed)
	return nil
}

// GRPCClient implements goplugin.GRPCPlugin; a plugin has no client end.
func (service) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is not a host")
}

// greet prints what this program is and how to use it.
func greet(w io.Writer, spec driver.Spec) {
	name := filepath.Base(os.Args[0])
	var b strings.Builder
	fmt.Fprintf(&b, "%s is the %s plugin: %s\n", name, spec.Name, spec.Doc)
	fmt.Fprintf(&b, "An application that uses plugin.Open(ctx, %q, ...) starts it; it does nothing by itself.\n\n", spec.Name)
	fmt.Fprintf(&b, "  %s describe [--json]   what it claims and which configuration it takes\n", name)
	fmt.Fprintf(&b, "  %s --version\n", name)
	for _, c := range spec.Commands {
		fmt.Fprintf(&b, "  %s %s [--config FILE]   %s\n", name, c.Name, c.Doc)
	}
	fmt.Fprint(w, b.String())
}

// identity makes this process's key pair for mutual TLS and announces its
// certificate to the host. It returns nil if the host does not use mutual TLS.
func identity() (*tls.Config, error) {
	client := os.Getenv(wire.EnvClientCert)
	if client == "" {
		return nil, nil
	}
	c, err := wire.NewCertificate()
	if err != nil {
		return nil, err
	}
	config, err := c.Server(client)
	if err != nil {
		return nil, err
	}
	return config, announce(base64.RawStdEncoding.EncodeToString(c.DER()))
}

// certField is the index of the certificate among the fields of the handshake line.
const certField = 5

// announce puts cert into the handshake line that go-plugin is about to print.
// Without that, go-plugin would announce only a certificate that it has made.
func announce(cert string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout := os.Stdout
	os.Stdout = w // until go-plugin has printed the line and sets os.Stdout again
	go func() {
		line, _ := bufio.NewReader(r).ReadString('\n')
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) > certField {
			fields[certField] = cert
		}
		fmt.Fprintln(stdout, strings.Join(fields, "|"))
		w.Close()
		r.Close()
	}()
	return nil
}
