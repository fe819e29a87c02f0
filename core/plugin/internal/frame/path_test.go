package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockbench/lockbench/core/driver"
)

type far struct {
	driver.Backend
	acquire func(context.Context, driver.Request) (uint64, error)
	wait    func(context.Context) error
	grant   driver.Grant // the grant of a Wait that succeeds
}

func (*far) Properties() driver.Properties {
	return driver.Properties{Capabilities: []driver.Capability{driver.CapWaiter}}
}
func (f *far) TryAcquire(ctx context.Context, r driver.Request) (uint64, error) {
	return f.acquire(ctx, r)
}
func (*far) Renew(context.Context, driver.Request) error       { return nil }
func (*far) Release(context.Context, driver.Request) error     { return nil }
func (f *far) Withdraw(ctx context.Context, _, _ string) error { return f.wait(ctx) }
func (f *far) Wait(ctx context.Context, _ driver.Request, _ time.Duration) (driver.Grant, error) {
	if err := f.wait(ctx); err != nil {
		return driver.Grant{}, err
	}
	return f.grant, nil
}

// path is a link to a backend in this process, together with the plugin's end.
type path struct {
	*Link
	failed chan error
	far    *Listener
	ended  chan error // the result of Serve
}

func open(t *testing.T, b driver.Backend) path {
	t.Helper()
	before := goleak.IgnoreCurrent()
	dir, err := os.MkdirTemp("", "frame-") // the path of t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	p := path{failed: make(chan error, 1), ended: make(chan error, 1)}
	if p.far, err = Listen(filepath.Join(dir, "s")); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.far.Serve(b, nil, func(err error) { t.Error(err) }, os.Getpid()) }()
	p.Link, err = Dial(t.Context(), filepath.Join(dir, "s"), os.Getpid(), nil, func(err error) { p.failed <- err })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.far.Close()
		p.Link.Close()
		select {
		case <-p.ended:
		case <-time.After(30 * time.Second):
			t.Error("the plugin's end does not end")
		}
		os.RemoveAll(dir)
		if err := goleak.Find(before); err != nil {
			t.Error(err)
		}
	})
	return p
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// blocking returns a backend in which every Wait and Withdraw, and a TryAcquire of "slow", block
// until their ctx ends or the test closes the channel free.
func blocking(free <-chan struct{}, slow *atomic.Int64) *far {
	hold := func(ctx context.Context) error {
		slow.Add(1)
		defer slow.Add(-1)
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return &far{
		acquire: func(ctx context.Context, r driver.Request) (uint64, error) {
			if r.Name != "slow" {
				return 1, nil
			}
			return 2, hold(ctx)
		},
		wait: hold,
	}
}

// Slow acquires and waits must not delay a renewal or a release, even if maxUnderWay allows no
// further acquire or wait. A further acquire must wait for room. If its ctx ends during that wait,
// it must not be sent.
func TestSlowRequestsHoldUpNoOther(t *testing.T) {
	var slow atomic.Int64
	free := make(chan struct{})
	p := open(t, blocking(free, &slow))
	var work sync.WaitGroup
	acquire := func() {
		if token, err := p.TryAcquire(t.Context(), driver.Request{Name: "slow"}); token != 2 || err != nil {
			t.Errorf("slow: %d, %v", token, err)
		}
	}
	for range maxUnderWay - 1 {
		work.Go(acquire)
		work.Go(func() {
			if _, err := p.Wait(t.Context(), driver.Request{Name: "slow"}, 0); err != nil {
				t.Errorf("wait: %v", err)
			}
		})
		work.Go(func() {
			if err := p.Withdraw(t.Context(), "slow", "o"); err != nil {
				t.Errorf("withdrawal: %v", err)
			}
		})
	}
	eventually(t, "all are under way", func() bool { return slow.Load() == 3*(maxUnderWay-1) })
	for range 100 {
		if _, err := p.TryAcquire(t.Context(), driver.Request{Name: "quick"}); err != nil {
			t.Fatal(err)
		}
	}
	work.Go(acquire)
	eventually(t, "the last one is under way", func() bool { return slow.Load() == 3*(maxUnderWay-1)+1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := p.TryAcquire(ctx, driver.Request{}); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one too many: %v", err)
	}
	lease := driver.Request{Name: "slow", Token: 1}
	if err := errors.Join(p.Renew(t.Context(), lease), p.Release(t.Context(), lease)); err != nil {
		t.Errorf("renewal and release beside them: %v", err)
	}
	close(free)
	work.Wait()
	if _, err := p.TryAcquire(t.Context(), driver.Request{}); err != nil {
		t.Error(err)
	}
}

// If the connection breaks, only requests that are still queued may fail with ErrNotSent.
func TestFaultTellsWhatWasSent(t *testing.T) {
	var slow atomic.Int64
	p := open(t, blocking(nil, &slow))
	// The test takes the reader's role, and reads no replies. So the
	// plugin stops reading requests, and unread requests fill the socket.
	p.out.mu.Lock()
	p.role.taken = true
	p.out.mu.Unlock()
	const count = 4096
	outcomes := make(chan error, count)
	for range count {
		go func() {
			_, err := p.TryAcquire(t.Context(), driver.Request{Name: "slow", Value: make([]byte, maxValue)})
			outcomes <- err
		}()
	}
	eventually(t, "requests wait to be written", func() bool {
		p.out.mu.Lock()
		defer p.out.mu.Unlock()
		return p.out.taken > 0 && len(p.out.buf) >= maxQueued/2
	})
	p.out.stop(errors.New("of this test"))
	unsent, unknown := 0, 0
	for range count {
		switch err := <-outcomes; {
		case !errors.Is(err, driver.ErrUnavailable):
			t.Fatalf("got %v", err)
		case errors.Is(err, driver.ErrNotSent):
			unsent++
		default:
			unknown++
		}
	}
	if unsent == 0 || unknown == 0 || int64(unknown) < slow.Load() {
		t.Errorf("%d not sent, %d unknown, of which the plugin has %d", unsent, unknown, slow.Load())
	}
	if err := <-p.failed; err == nil {
		t.Error("no cause")
	}
	if _, err := p.TryAcquire(t.Context(), driver.Request{}); !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("afterwards: %v", err)
	}
}

func TestBadFramesEndTheConnection(t *testing.T) {
	for name, frame := range map[string][]byte{
		"empty":   {0, 0, 0, 0},
		"huge":    {255, 0, 0, 0},
		"unknown": {0, 0, 0, 2, 77, 1},
		"short":   {0, 0, 0, 2, byte(kindAcquire), 1},
	} {
		t.Run("to the plugin, "+name, func(t *testing.T) {
			p := open(t, &far{})
			if _, err := p.out.end.Write(frame); err != nil {
				t.Fatal(err)
			}
			if err := <-p.ended; !errors.Is(err, errBroken) {
				t.Errorf("it ended with %v", err)
			}
			p.ended <- nil
			if _, err := p.TryAcquire(t.Context(), driver.Request{}); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		})
	}
	got := make(chan *request, 1)
	p := open(t, &far{acquire: func(ctx context.Context, _ driver.Request) (uint64, error) {
		got <- ctx.(*request)
		<-ctx.Done()
		return 0, ctx.Err()
	}})
	go func() {
		r := <-got
		bad := append(binary.AppendUvarint([]byte{0, 0, 0, 0}, r.id), 9)
		bad[3] = byte(len(bad) - headSize)
		_, _ = r.session.out.end.Write(bad)
	}()
	if _, err := p.TryAcquire(t.Context(), driver.Request{}); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent) {
		t.Errorf("got %v", err)
	}
	if err := <-p.failed; !errors.Is(err, errBroken) {
		t.Errorf("failed with %v", err)
	}
}

func TestOnlyTheOtherProcessMayTalk(t *testing.T) {
	dir, err := os.MkdirTemp("", "frame-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(&far{}, nil, func(err error) { refused <- err }, os.Getppid()) }()
	if _, err := Dial(t.Context(), path, os.Getppid(), nil, nil); !errors.Is(err, ErrPeer) {
		t.Errorf("a link to another process: %v", err)
	}
	<-refused // the plugin has refused the connection that was closed at once
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := <-refused; !errors.Is(err, ErrPeer) {
		t.Errorf("a host that is another process: %v", err)
	}
	l.Close()
	if err := <-ended; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// starter finishes an acquire when the test calls done, and finishes other operations at once.
type starter struct {
	far
	started chan func(driver.Result)
}

func (*starter) Properties() driver.Properties {
	return driver.Properties{Capabilities: []driver.Capability{driver.CapStarter}}
}

func (s *starter) Start(_ context.Context, op driver.Op, done func(driver.Result)) {
	if op.Kind == driver.OpAcquire {
		s.started <- done
		return
	}
	done(driver.Result{Err: driver.ErrWithdrawn})
}

// undeclared has a Start method, but does not declare the Starter capability.
type undeclared struct{ starter }

func (*undeclared) Properties() driver.Properties { return driver.Properties{} }

func TestUndeclaredStarter(t *testing.T) {
	u := &undeclared{}
	u.acquire = func(context.Context, driver.Request) (uint64, error) { return 7, nil }
	if token, err := open(t, u).TryAcquire(t.Context(), driver.Request{}); token != 7 || err != nil {
		t.Errorf("%d, %v, want what TryAcquire returns", token, err)
	}
}

func TestStartedRequests(t *testing.T) {
	s := &starter{started: make(chan func(driver.Result), 2)}
	p := open(t, s)
	first, second := make(chan uint64, 1), make(chan uint64, 1)
	acquire := func(token chan uint64) {
		got, err := p.TryAcquire(t.Context(), driver.Request{})
		if err != nil {
			t.Error(err)
		}
		token <- got
	}
	go acquire(first)
	one := <-s.started
	go acquire(second)
	two := <-s.started
	if err := p.Release(t.Context(), driver.Request{}); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("one that is answered at once: %v", err)
	}
	two(driver.Result{Token: 2})
	if token := <-second; token != 2 {
		t.Errorf("the second got %d", token)
	}
	one(driver.Result{Token: 1})
	if token := <-first; token != 1 {
		t.Errorf("the first got %d", token)
	}
	go func() { _, _ = p.TryAcquire(t.Context(), driver.Request{}) }()
	late := <-s.started
	p.far.Close()
	select {
	case <-p.ended:
		t.Error("the plugin's end ended before its last request")
	case <-time.After(10 * time.Millisecond):
	}
	late(driver.Result{})
}
