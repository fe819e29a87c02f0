package backendtest

import (
	"io"
	"net"
	"sync"

	"github.com/lockbench/lockbench/core/drivertest"
)

// Forwarder is an address that leads to one server or, in turn, to several. A
// connection stays where it led when it was made.
type Forwarder struct {
	listener net.Listener
	ends     sync.WaitGroup

	mu   sync.Mutex
	to   []string
	next int
	open []net.Conn
}

// NewForwarder listens until the test ends.
func NewForwarder(t drivertest.T, to ...string) *Forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	f := &Forwarder{listener: l, to: to}
	f.ends.Go(f.accept)
	t.Cleanup(func() {
		_ = l.Close()
		f.Cut()
		f.ends.Wait()
	})
	return f
}

// Addr is where it listens.
func (f *Forwarder) Addr() string { return f.listener.Addr().String() }

// Lead has later connections lead to other servers, and cuts none.
func (f *Forwarder) Lead(to ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to, f.next = to, 0
}

// Cut cuts the connections.
func (f *Forwarder) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.open {
		_ = c.Close()
	}
	f.open = nil
}

func (f *Forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		server, err := net.Dial("tcp", f.to[f.next%len(f.to)])
		f.next++
		if err != nil {
			_ = client.Close()
			f.mu.Unlock()
			continue
		}
		f.open = append(f.open, client, server)
		f.mu.Unlock()
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			f.ends.Go(func() {
				_, _ = io.Copy(way[1], way[0])
				_ = client.Close()
				_ = server.Close()
			})
		}
	}
}
