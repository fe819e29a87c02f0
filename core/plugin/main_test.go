package plugin_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/memory"
)

// TestMain lets the test binary also run as a host process or, if its file name begins with
// lockplugin-, as a plugin.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); {
	case name == "lockplugin-far":
		serve.Main(farSpec)
	case strings.HasPrefix(name, "lockplugin-"):
		bad(strings.TrimPrefix(name, "lockplugin-"))
	case os.Getenv(deafHost) != "":
		beDeafHost(os.Getenv(deafHost))
	}
	plugintest.Main(m)
}

// link makes a link called lockplugin-NAME to this binary, and returns the link's path.
func link(t drivertest.T, name string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatalf("%v", err)
	}
	dir, err := os.MkdirTemp("", "link-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "lockplugin-"+name)
	if err := os.Symlink(exe, path); err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

// farSpec is a backend whose memory store is in the test process, so that the store outlives
// plugins and hosts.
var farSpec = driver.Spec{
	Name: "far",
	Doc:  "a store in the test process",
	Keys: []driver.Key{
		{Name: "address", Type: driver.TypeString, Required: true, Doc: "socket of the store"},
		{Name: "password", Type: driver.TypeString, Secret: true, Doc: "not asked for"},
		{Name: "fail", Type: driver.TypeString, Doc: "how Open fails: error, panic, hang"},
	},
	Properties: farProperties(driver.Properties{}),
	Open:       openFar,
}

func farProperties(p driver.Properties) driver.Properties {
	if p.Name == "" {
		p = memory.Spec.Properties
		p.Capabilities = append(slices.Clone(p.Capabilities), driver.CapStarter)
	}
	p.Name, p.Scope, p.SurvivesPlugin, p.Durability = "far", driver.ScopeShared, true, "as long as the test"
	return p
}

type far struct {
	wire.Link
	unary *wire.Unary
	conn  *grpc.ClientConn
	log   *slog.Logger
}

func openFar(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
	fmt.Println("printing does not disturb the handshake")
	log.Info("opening", "address", cfg["address"], "with", cfg["password"])
	switch cfg["fail"] {
	case "error":
		return nil, fmt.Errorf("%w: cannot work with password %s", driver.ErrConfig, cfg["password"])
	case "panic":
		panic("cannot work with password " + cfg["password"])
	case "hang":
		select {}
	}
	conn, err := grpc.NewClient("unix:"+cfg["address"], append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, err
	}
	u := wire.NewUnary(conn)
	return &far{Link: u, unary: u, conn: conn, log: log}, nil
}

func (f *far) Properties() driver.Properties { return farProperties(driver.Properties{}) }

// Start implements driver.Starter.
func (f *far) Start(ctx context.Context, op driver.Op, done func(driver.Result)) {
	go func() {
		var r driver.Result
		switch op.Kind {
		case driver.OpAcquire:
			r.Token, r.Err = f.TryAcquire(ctx, op.Request)
		case driver.OpRenew:
			r.Err = f.Renew(ctx, op.Request)
		case driver.OpRelease:
			r.Err = f.Release(ctx, op.Request)
		case driver.OpWithdraw:
			r.Err = f.Withdraw(ctx, op.Name, op.Owner)
		}
		done(r)
	}()
}

func (f *far) Check(ctx context.Context) error {
	_, err := f.Link.Check(ctx)
	return err
}

func (f *far) Inspect(ctx context.Context, name string) (driver.Holder, error) {
	switch name {
	case "panic":
		panic("out of luck")
	case "hang up":
		hangUp()
	case "chatter":
		for i := range 2048 {
			f.log.Info("chatter", "n", i, "text", strings.Repeat("x", 1000))
		}
	}
	return f.Link.Inspect(ctx, name)
}

func hangUp() {
	for fd := range 1024 {
		name, err := syscall.Getsockname(fd)
		if unix, ok := name.(*syscall.SockaddrUnix); err == nil && ok && filepath.Base(unix.Name) == "data" {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

func (f *far) Close(context.Context) error { return f.conn.Close() }

// store is a memory store behind a socket. The backend far keeps its locks there.
type store struct {
	socket string
	local  driver.Backend // the same store without the wire protocol
}

func newStore(t drivertest.T) *store {
	t.Helper()
	dir, err := os.MkdirTemp("", "far-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	shared := memory.NewStore()
	s := &store{socket: filepath.Join(dir, "s"), local: shared.Open()}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		t.Fatalf("%v", err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	wire.Register(server, &storeHost{backend: shared.Open()}, nil, nil)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended
		os.RemoveAll(dir)
	})
	// The store's server serves only after Configure, which no host calls, so the test calls it.
	conn, err := grpc.NewClient("unix:"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer conn.Close()
	if _, err := wire.NewUnary(conn).Configure(t.Context(), wire.Setup{}); err != nil {
		t.Fatalf("configuring the store: %v", err)
	}
	return s
}

func (s *store) config() driver.Config { return driver.Config{"address": s.socket} }

type storeHost struct{ backend driver.Backend }

func (h *storeHost) Configure(context.Context, wire.Setup) (wire.Opened, error) {
	return wire.Opened{Backend: h.backend}, nil
}
func (h *storeHost) SessionBegan() (ended func())    { return func() {} }
func (h *storeHost) Close(ctx context.Context) error { return errors.New("not ours to close") }

// bad runs as a bad plugin. The parameter how names the defect.
func bad(how string) {
	switch how {
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot find my libraries")
		os.Exit(3)
	case "words":
		for i := range 320 {
			fmt.Fprintf(os.Stderr, "%03d %s\n", i, strings.Repeat("word ", 13000))
		}
		os.Exit(9)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "hang":
		time.Sleep(time.Hour)
	case "version":
		fmt.Println("1|7|unix|/nowhere|grpc|")
	case "core":
		fmt.Println("2|1|unix|/nowhere|grpc|")
	case "garbage", "netrpc", "cert", "unasked":
		c, _ := wire.NewCertificate()
		fmt.Println(map[string]string{
			"garbage": "Hello, world!",
			"netrpc":  "1|1|unix|/nowhere|netrpc|",
			"cert":    "1|1|unix|/nowhere|grpc|" + strings.Repeat("A", 60),
			"unasked": "1|1|unix|/nowhere|grpc|" + base64.RawStdEncoding.EncodeToString(c.DER()), // the host set NoMTLS
		}[how])
		time.Sleep(time.Hour)
	case "flood":
		for {
			fmt.Print(strings.Repeat("x", 4096)) // SIGPIPE ends it when nobody reads
		}
	case "nomtls", "mute":
		mute()
	case "gone":
		fmt.Println("1|1|unix|/nowhere|grpc|")
		os.Exit(6)
	}
	os.Exit(1)
}

// mute completes the handshake and accepts connections, but never sends a byte.
func mute() {
	listener, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "s"))
	if err != nil {
		os.Exit(4)
	}
	fmt.Printf("1|1|unix|%s|grpc|\n", listener.Addr())
	for {
		if _, err := listener.Accept(); err != nil {
			os.Exit(5)
		}
	}
}

const memoryMain = "github.com/lockbench/lockbench/plugins/memory/lockplugin-memory"
