package plugintest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// Loopback returns a backend that calls b through protocol version 2, over Unix sockets inside this
// process. It encodes values and errors as host and plugin do. When the test ends, it closes b.
func Loopback(t drivertest.T, b driver.Backend) driver.Backend {
	t.Helper()
	return loopbackOf(t, b, wire.VersionFramed)
}

// UnaryLoopback is like Loopback, but uses protocol version 1.
func UnaryLoopback(t drivertest.T, b driver.Backend) driver.Backend {
	t.Helper()
	return loopbackOf(t, b, wire.VersionUnary)
}

func loopbackOf(t drivertest.T, b driver.Backend, version int) driver.Backend {
	t.Helper()
	dir, err := os.MkdirTemp("", "loopback-")
	if err != nil {
		t.Fatalf("socket directory: %v", err)
	}
	l := &loopback{server: grpc.NewServer(wire.ServerOptions()...), far: &farEnd{backend: b, done: make(chan struct{})}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupBudget)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Errorf("closing the loopback: %v", err)
		}
		l.stop()
		os.RemoveAll(dir)
	})
	if err := l.connect(t.Context(), dir, version); err != nil {
		t.Fatalf("loopback: %v", err)
	}
	return l
}

// loopback is a driver.Backend with both ends of the connections.
type loopback struct {
	wire.Link
	unary  *wire.Unary
	data   *frame.Link // nil in version 1
	far    *farEnd
	conn   *grpc.ClientConn
	server *grpc.Server
	served sync.WaitGroup

	props    atomic.Pointer[driver.Properties]
	once     sync.Once
	closeErr error
}

// connect serves the backend on sockets in directory dir, and connects to these sockets.
func (l *loopback) connect(ctx context.Context, dir string, version int) error {
	socket := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if version == wire.VersionFramed {
		l.far.socket = filepath.Join(dir, "data")
	}
	wire.Register(l.server, l.far, nil, l.far.done)
	l.served.Go(func() { _ = l.server.Serve(listener) }) // returns after Stop
	l.conn, err = grpc.NewClient("unix:"+socket, append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	l.unary = wire.NewUnary(l.conn)
	l.Link = l.unary
	c, err := l.unary.Configure(ctx, wire.Setup{})
	if err != nil {
		return err
	}
	l.props.Store(&c.Properties)
	if c.DataSocket == "" {
		return nil
	}
	// The callback for a broken connection does nothing, because each call then returns the error.
	l.data, err = frame.Dial(ctx, c.DataSocket, os.Getpid(), l.unary, func(error) {})
	if err == nil {
		l.Link = l.data
	}
	return err
}

func (l *loopback) Check(ctx context.Context) error {
	props, err := l.Link.Check(ctx)
	if err == nil {
		l.props.Store(&props)
	}
	return err
}

func (l *loopback) Properties() driver.Properties { return *l.props.Load() }

// Close implements driver.Backend. It keeps the server running until the test case ends, so that
// calls after Close reach the closed backend.
func (l *loopback) Close(ctx context.Context) error {
	l.once.Do(func() {
		if l.unary != nil {
			l.closeErr = l.unary.Close(ctx)
		}
	})
	return l.closeErr
}

func (l *loopback) stop() {
	if l.data != nil {
		l.data.Close()
	}
	l.far.stop()
	if l.conn != nil {
		l.conn.Close()
	}
	l.server.Stop()
	l.served.Wait()
}

// farEnd is the plugin's end of the connections, inside this process. It implements wire.Host.
type farEnd struct {
	backend driver.Backend
	done    chan struct{}
	socket  string // "" in version 1
	data    *frame.Listener
	served  sync.WaitGroup
}

func (f *farEnd) Configure(context.Context, wire.Setup) (wire.Opened, error) {
	o := wire.Opened{Name: f.backend.Properties().Name, Backend: f.backend, DataSocket: f.socket}
	if f.socket == "" {
		return o, nil
	}
	var err error
	if f.data, err = frame.Listen(f.socket); err != nil {
		return o, err
	}
	f.served.Go(func() { _ = f.data.Serve(f.backend, nil, func(error) {}, os.Getpid()) }) // returns after stop
	return o, nil
}

func (f *farEnd) stop() {
	if f.data != nil {
		f.data.Close()
	}
	f.served.Wait()
}

func (f *farEnd) SessionBegan() (ended func()) { return func() {} }

func (f *farEnd) Close(ctx context.Context) error {
	close(f.done)
	return f.backend.Close(ctx)
}
