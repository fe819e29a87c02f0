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
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	hclog "github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// stopGrace is the longest time that a closed plugin takes to send its last replies.
const stopGrace = 300 * time.Millisecond

// Main is the whole main function of a plugin. If a host has started the process, Main
// serves the backend of spec until the host closes the plugin or dies. Otherwise Main
// executes the command line, which is "describe [--json]", "--version" or a command of
// spec. Without arguments, Main prints what the program is. Main never returns.
//
// Call Main first in the main function. If a host has started the process, Main closes the file
// descriptors that the process inherited, except the first three and the pipe to its host. On
// Linux, Main sets no_new_privs. If the program uses cgo, Main must execute the program again to
// set no_new_privs for all threads, so code before the call of Main runs twice.
func Main(spec driver.Spec) {
	if h := wire.Handshake(); len(os.Args) == 1 && os.Getenv(h.MagicCookieKey) == h.MagicCookieValue {
		os.Exit(serve(spec))
	}
	refusePrivileges()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := command(ctx, spec, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// serve runs the plugin process and returns its exit code.
func serve(spec driver.Spec) int {
	closeInherited()
	refusePrivileges() // may execute this program again in the same process
	// A log line to a dead host's pipe causes SIGPIPE. The plugin must survive that, to
	// release the host's locks. Terminals and service managers send the other signals
	// to plugin and host together, but a host that shuts down still needs its plugin. So
	// the plugin ends only when the host closes it, dies, or can no longer reach it.
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

// closeInherited closes the file descriptors that this process got from its host, except the first
// three and the lifeline. Libraries in the host may open files without FD_CLOEXEC. If, for example,
// the plugin of a dead host kept the host's listening socket open, no new host could use the
// socket's port. Descriptors that this process or its Go runtime has opened have FD_CLOEXEC, so
// closeInherited skips them.
func closeInherited() {
	dir := "/dev/fd"
	if runtime.GOOS == "linux" {
		dir = "/proc/self/fd"
	}
	names, err := os.ReadDir(dir)
	if err != nil {
		return // the descriptors stay open: no other directory lists them
	}
	for _, name := range names {
		fd, err := strconv.Atoi(name.Name())
		if err != nil || fd <= int(os.Stderr.Fd()) || name.Name() == os.Getenv(wire.EnvLifeline) {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
}

// stop ends the server when its last replies are sent, or after stopGrace if that is earlier.
func stop(server *grpc.Server) {
	force := time.AfterFunc(stopGrace, server.Stop)
	defer force.Stop()
	server.GracefulStop()
}

// service registers the plugin's gRPC service, for the agreed protocol version.
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

// GRPCClient implements goplugin.GRPCPlugin.
func (service) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("a plugin is not a host")
}

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

// announce puts the certificate cert into the handshake line that go-plugin is about to print.
// go-plugin itself would announce only a certificate that it has made.
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
