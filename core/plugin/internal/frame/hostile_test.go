package frame

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

// These fuzz targets send arbitrary bytes to one end of the data path,
// as a broken peer or a peer of another version may do.

func pair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socketpair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	return ends[0], ends[1]
}

func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("it hangs: %s", what)
	}
}

// sieve is a backend with the capabilities Waiter and Batcher. It fails the test if a request
// exceeds the protocol's limits.
type sieve struct {
	driver.Backend
	t *testing.T
}

func (s sieve) answer(rs ...driver.Request) (uint64, error) {
	for _, r := range rs {
		if len(r.Name) > maxName || len(r.Owner) > maxOwner || len(r.Label) > maxLabel || len(r.Value) > maxValue || !utf8.ValidString(r.Name) {
			s.t.Errorf("the backend is asked %+v", r)
		}
	}
	h := driver.Holder{Name: rs[0].Name, Owner: rs[0].Owner, Label: rs[0].Label, Value: rs[0].Value, Token: rs[0].Token, TTL: rs[0].TTL}
	switch {
	case strings.HasPrefix(rs[0].Name, "held"):
		return 0, &driver.HeldError{Holder: h}
	case strings.HasPrefix(rs[0].Name, "not"):
		return 0, &driver.NotHeldError{Holder: h}
	}
	return rs[0].Token, nil
}

func (sieve) Properties() driver.Properties {
	return driver.Properties{Capabilities: []driver.Capability{driver.CapWaiter, driver.CapBatcher}}
}
func (s sieve) TryAcquire(_ context.Context, r driver.Request) (uint64, error) { return s.answer(r) }
func (s sieve) Renew(_ context.Context, r driver.Request) error                { return s.only(r) }
func (s sieve) Release(_ context.Context, r driver.Request) error              { return s.only(r) }
func (s sieve) Withdraw(_ context.Context, name, owner string) error {
	return s.only(driver.Request{Name: name, Owner: owner})
}
func (s sieve) Proclaim(_ context.Context, r driver.Request) error { return s.only(r) }

func (s sieve) only(r driver.Request) error {
	_, err := s.answer(r)
	return err
}

func (s sieve) Inspect(_ context.Context, name string) (driver.Holder, error) {
	return driver.Holder{Name: name, Owner: "o", TTL: 1}, s.only(driver.Request{Name: name})
}

func (s sieve) Wait(ctx context.Context, r driver.Request, _ time.Duration) (driver.Grant, error) {
	if err := s.only(r); err != nil {
		return driver.Grant{}, err
	}
	<-ctx.Done()
	return driver.Grant{}, ctx.Err()
}

func (s sieve) Batch(_ context.Context, ops []driver.Op) []driver.Result {
	if len(ops) > maxBatchOps {
		s.t.Errorf("a batch of %d", len(ops))
	}
	results := make([]driver.Result, len(ops))
	for i, op := range ops {
		results[i].Token, results[i].Err = s.answer(op.Request)
	}
	return results
}

type starting struct{ sieve }

func (s starting) Properties() driver.Properties {
	p := s.sieve.Properties()
	p.Capabilities = append(p.Capabilities, driver.CapStarter)
	return p
}

func (s starting) Start(_ context.Context, op driver.Op, done func(driver.Result)) {
	token, err := s.answer(op.Request)
	go done(driver.Result{Token: token, Err: err})
}

// FuzzSession plays a host that sends arbitrary bytes. It checks that no request to the backend
// exceeds a limit, every reply belongs to a request, and the session ends when the stream ends.
func FuzzSession(f *testing.F) {
	var whole []byte
	for i, m := range messages(&testing.T{}) {
		m.request.Name = []string{"free", "held", "not held"}[i%3]
		whole = appendFrame(whole, m.append(nil, uint64(i)))
		f.Add(whole, i%2 == 0)
	}
	f.Add(appendFrame(whole, []byte{byte(kindCancel), 5}), false)
	f.Add(appendFrame(whole, []byte{byte(kindInspect), 99, 0, 1, 0xff}), false)
	f.Add([]byte{0, 0x40, 0, 0, byte(kindBatch), 1, 0, 0xff, 0xff, 3}, true)
	f.Fuzz(func(t *testing.T, stream []byte, starts bool) {
		requests, host := pair(t)
		replies, hostReplies := pair(t)
		defer host.Close()
		defer hostReplies.Close()
		var b driver.Backend = sieve{t: t}
		if starts {
			b = starting{sieve{t: t}}
		}
		s, err := newSession(requests, replies, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		var end error
		var answered []byte
		var both sync.WaitGroup
		both.Go(func() { end = s.serve() })
		both.Go(func() { answered, _ = io.ReadAll(hostReplies) }) // a reset may end the stream
		both.Go(func() {
			_, _ = host.Write(stream) // fails if the plugin closes the connection
			_ = host.CloseWrite()
		})
		inTime(t, "a session whose host is gone", both.Wait)
		if end != nil && !errors.Is(end, errBroken) && !errors.Is(end, net.ErrClosed) && !errors.Is(end, syscall.ECONNRESET) {
			t.Errorf("the session ends with %v", end)
		}
		checkReplies(t, stream, answered)
	})
}

func appendFrame(b, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// checkReplies fails the test if a reply belongs to no request in stream.
// The last reply may be incomplete.
func checkReplies(t *testing.T, stream, replies []byte) {
	t.Helper()
	asked := map[uint64]int{}
	var c coder
	for p := range framesOf(stream) {
		var m message
		id, err := c.readRequest(p, &m)
		if err != nil {
			break
		}
		if m.kind != kindCancel {
			asked[id]++
		}
	}
	for p := range framesOf(replies) {
		id, n := binary.Uvarint(p)
		if asked[id]--; n <= 0 || asked[id] < 0 {
			t.Errorf("%x is a reply to nothing", p)
		}
	}
}

func framesOf(stream []byte) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(stream) >= headSize {
			n := int(binary.BigEndian.Uint32(stream))
			if n > len(stream)-headSize || !yield(stream[headSize:headSize+n]) {
				return
			}
			stream = stream[headSize+n:]
		}
	}
}

// FuzzLink plays a plugin that sends arbitrary bytes. It checks that every call of the host ends,
// no call is both granted and refused, and the link reports the reason for its end at most once.
func FuzzLink(f *testing.F) {
	h := driver.Holder{Name: "n", Owner: "o", Value: []byte{}, Token: 1, TTL: 1, Waiters: -1}
	answers := []answer{
		{token: 7}, {}, {holder: h}, {token: 8, span: time.Second}, {results: []driver.Result{{Token: 1}, {Err: driver.ErrHeld}}},
	}
	var whole []byte
	for i, a := range answers {
		whole = appendFrame(whole, appendAnswer(nil, callID(i), callKinds[i], &a, nil))
		f.Add(whole)
		f.Add(appendFrame(nil, appendAnswer(nil, callID(i), callKinds[i], &answer{err: &driver.HeldError{Holder: h}}, nil)))
		f.Add(appendFrame(whole, appendAnswer(nil, callID(i), callKinds[i], &a, nil))) // the same answer again
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, stream []byte) {
		requests, plugin := pair(t)
		replies, pluginReplies := pair(t)
		defer plugin.Close()
		defer pluginReplies.Close()
		var failures []error
		l, err := newLink(requests, replies, nil, func(err error) { failures = append(failures, err) })
		if err != nil {
			t.Fatal(err)
		}
		var work, far sync.WaitGroup
		for i, call := range calls(t, l) {
			work.Go(call)
			inTime(t, "sending a request", func() { awaitCalls(l, i+1) })
		}
		far.Go(func() {
			_, _ = pluginReplies.Write(stream) // fails if the host closes the connection
			_ = pluginReplies.Close()
			_, _ = io.Copy(io.Discard, plugin)
		})
		inTime(t, "calls whose plugin is gone", func() {
			work.Wait()
			l.Close()
			far.Wait()
		})
		if len(failures) > 1 {
			t.Errorf("the link failed more than once: %v", failures)
		}
	})
}

// callKinds[i] is the kind of the request that the i-th function from calls(t, l) sends.
var callKinds = []kind{kindAcquire, kindRenew, kindInspect, kindWait, kindBatch}

// callID returns the id that a new link gives to its i-th call while all
// earlier calls are under way.
func callID(i int) uint64 { return uint64(i+1)<<slotBits | uint64(i) }

func calls(t *testing.T, l *Link) []func() {
	ctx, r := t.Context(), driver.Request{Name: "n", Owner: "o", TTL: time.Second}
	either := func(token uint64, err error) {
		if err != nil && token != 0 {
			t.Errorf("granted %d and refused: %v", token, err)
		}
	}
	return []func(){
		func() { either(l.TryAcquire(ctx, r)) },
		func() { _ = l.Renew(ctx, r) },
		func() {
			h, err := l.Inspect(ctx, "n")
			if err != nil && h.Held() || len(h.Name) > maxShown || len(h.Value) > maxValue {
				t.Errorf("inspected %+v, %v", h, err)
			}
		},
		func() { _, _ = l.Wait(ctx, r, time.Hour) },
		func() {
			ops := []driver.Op{{Kind: driver.OpAcquire, Request: r}, {Kind: driver.OpRelease, Request: r}}
			results := l.Batch(ctx, ops)
			if len(results) != len(ops) {
				t.Errorf("%d results", len(results))
			}
			for _, res := range results {
				either(res.Token, res.Err)
			}
		},
	}
}

func awaitCalls(l *Link, n int) {
	for sent := 0; sent < n; time.Sleep(10 * time.Microsecond) {
		l.out.mu.Lock()
		sent = int(l.count)
		l.out.mu.Unlock()
	}
}
