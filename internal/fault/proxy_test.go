package fault

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// echo is a server that answers every byte with itself, and counts them.
type echo struct {
	listener net.Listener
	mu       sync.Mutex
	received int
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e := &echo{listener: l}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	buf := make([]byte, 1024)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		e.mu.Lock()
		e.received += n
		e.mu.Unlock()
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (e *echo) got() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.received
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func proxied(t *testing.T) (*Proxy, *echo) {
	t.Helper()
	e := startEcho(t)
	p, err := NewProxy(e.listener.Addr().String())
	must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p, e
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// say sends text and reads its echo, for as long as wait.
func say(c net.Conn, text string, wait time.Duration) (string, error) {
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	b := make([]byte, len(text))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

const (
	patience = 30 * time.Second
	brief    = 100 * time.Millisecond
)

func TestProxyPassesAndHeals(t *testing.T) {
	for name, harm := range map[string]func(*Proxy) error{
		"nothing":   func(*Proxy) error { return nil },
		"delay":     func(p *Proxy) error { return p.Delay(20*time.Millisecond, 0) },
		"throttle":  func(p *Proxy) error { return p.Throttle(100) },
		"dribble":   func(p *Proxy) error { return p.Dribble(1, 100*time.Microsecond) },
		"reset few": func(p *Proxy) error { return p.Reset(0) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := proxied(t)
			c := dial(t, p)
			for _, when := range []string{"before", "with the harm", "healed"} {
				if got, err := say(c, when, patience); got != when || err != nil {
					t.Fatalf("%s: %q, %v", when, got, err)
				}
				if when == "before" {
					must(t, harm(p))
				} else {
					must(t, p.Heal())
				}
			}
		})
	}
}

func TestDelayDelays(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	must(t, p.Delay(200*time.Millisecond, 0))
	start := time.Now()
	if _, err := say(c, "x", patience); err != nil || time.Since(start) < 150*time.Millisecond {
		t.Errorf("answered after %v, %v", time.Since(start), err)
	}
}

// TestSwallowed: with both directions gone nothing reaches the server, with
// the replies gone the request does; nobody is told in either case, and a
// healed proxy serves new connections.
func TestSwallowed(t *testing.T) {
	for name, tt := range map[string]struct {
		harm func(*Proxy) error
		want string
	}{
		"black hole":   {(*Proxy).BlackHole, "before"},
		"lost replies": {(*Proxy).LoseReplies, "beforeduring"},
	} {
		t.Run(name, func(t *testing.T) {
			p, e := proxied(t)
			c := dial(t, p)
			if _, err := say(c, "before", patience); err != nil {
				t.Fatal(err)
			}
			must(t, tt.harm(p))
			if got, err := say(c, "during", brief); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("answered %q, %v; want silence", got, err)
			}
			for deadline := time.Now().Add(patience); e.got() < len(tt.want) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if e.got() != len(tt.want) {
				t.Errorf("the server got %d bytes, want those of %q", e.got(), tt.want)
			}
			must(t, p.Heal())
			if got, err := say(dial(t, p), "after", patience); got != "after" || err != nil {
				t.Errorf("after healing: %q, %v", got, err)
			}
		})
	}
}

func TestResetIsSeen(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	if _, err := say(c, "before", patience); err != nil {
		t.Fatal(err)
	}
	must(t, p.Reset(1))
	if got, err := say(c, "during", patience); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v; want a broken connection", got, err)
	}
}

func TestHarmsRefuseNonsense(t *testing.T) {
	p, _ := proxied(t)
	for name, err := range map[string]error{
		"share": p.Reset(1.5), "rate": p.Throttle(0), "size": p.Dribble(0, time.Millisecond),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "fault: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestHoleHidesDeath: the server does not see that a client behind a black hole
// is gone, until the hole is.
func TestHoleHidesDeath(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	p, err := NewProxy(l.Addr().String())
	must(t, err)
	c := dial(t, p)
	_, err = io.WriteString(c, "x")
	must(t, err)
	s, err := l.Accept()
	must(t, err)
	defer s.Close()
	one := make([]byte, 1)
	_, err = io.ReadFull(s, one)
	must(t, err)
	must(t, p.BlackHole())
	c.Close()
	must(t, s.SetReadDeadline(time.Now().Add(brief)))
	if _, err := s.Read(one); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server has seen %v", err)
	}
	must(t, p.Close())
	must(t, s.SetReadDeadline(time.Now().Add(patience)))
	if _, err := s.Read(one); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the end of the proxy: %v, want a broken connection", err)
	}
}

// TestObserve: each piece is seen in both directions, also after harms came and
// went, and what is done from within befalls that piece.
func TestObserve(t *testing.T) {
	p, e := proxied(t)
	var requests, replies atomic.Int32
	end := p.Observe(func(way Direction) {
		if way == Requests {
			requests.Add(1)
			return
		}
		replies.Add(1)
	})
	c := dial(t, p)
	for range 2 {
		if _, err := say(c, "x", patience); err != nil {
			t.Fatal(err)
		}
		must(t, p.Delay(time.Millisecond, 0))
		must(t, p.Heal())
	}
	if requests.Load() != 2 || replies.Load() != 2 {
		t.Errorf("seen %d requests and %d replies, want 2 each", requests.Load(), replies.Load())
	}
	end()
	end()
	once := sync.OnceFunc(func() { must(t, p.BlackHole()) })
	defer p.Observe(func(way Direction) {
		if way == Replies {
			once()
		}
	})()
	if got, err := say(c, "y", brief); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("answered %q, %v; want silence", got, err)
	}
	if e.got() != 3 {
		t.Errorf("the server got %d bytes, want 3", e.got())
	}
	if requests.Load() != 2 || replies.Load() != 2 {
		t.Error("seen after the end")
	}
}

// TestApart: what is healed apart leaves other harm of the same kind.
func TestApart(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	slow := func(p *Proxy) error { return p.Delay(150*time.Millisecond, 0) }
	first, err := p.Apart(slow)
	must(t, err)
	second, err := p.Apart(slow)
	must(t, err)
	for _, want := range []time.Duration{300, 150, 0} {
		start := time.Now()
		if _, err := say(c, "x", patience); err != nil || time.Since(start) < want*time.Millisecond {
			t.Errorf("answered after %v, %v; want %v", time.Since(start), err, want*time.Millisecond)
		}
		if want == 300 {
			must(t, first())
		} else {
			must(t, second())
		}
	}
}

func TestRefuse(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	for range 2 {
		must(t, p.Refuse())
	}
	if _, err := say(c, "x", patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v on an open connection, want a reset", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refusal", err)
	}
	must(t, p.Heal())
	if got, err := say(dial(t, p), "x", patience); got != "x" || err != nil {
		t.Errorf("after healing: %q, %v", got, err)
	}
}

func TestCut(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	if _, err := say(c, "x", patience); err != nil {
		t.Fatal(err)
	}
	must(t, p.Cut())
	if _, err := say(c, "x", patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a reset", err)
	}
	if got, err := say(dial(t, p), "x", patience); got != "x" || err != nil {
		t.Errorf("a new connection: %q, %v", got, err)
	}
}

// TestForgotten: one side's connection has ended and the other's has not, until
// it is healed; new connections work in between.
func TestForgotten(t *testing.T) {
	for _, ofClients := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		p, err := NewProxy(l.Addr().String())
		must(t, err)
		pair := func() (client, server net.Conn) {
			client = dial(t, p)
			server, err := l.Accept()
			must(t, err)
			t.Cleanup(func() { server.Close() })
			if _, err := io.WriteString(client, "x"); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			return client, server
		}
		ended, open := pair()
		forget := (*Proxy).ForgetClients
		if !ofClients {
			ended, open = open, ended
			forget = (*Proxy).ForgetServer
		}
		must(t, forget(p))
		silent := func(c net.Conn, wait time.Duration) bool {
			must(t, c.SetReadDeadline(time.Now().Add(wait)))
			_, err := c.Read(make([]byte, 1))
			if err == nil {
				t.Error("there was something to read")
			}
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		if silent(ended, patience) || !silent(open, brief) {
			t.Errorf("of clients %v: one must have ended, the other not", ofClients)
		}
		pair()
		must(t, p.Heal())
		if silent(open, patience) {
			t.Errorf("of clients %v: still open after healing", ofClients)
		}
		must(t, p.Close())
	}
}

func TestSlowStart(t *testing.T) {
	p, _ := proxied(t)
	must(t, p.SlowStart(100*time.Millisecond))
	c := dial(t, p)
	for i, slow := range []bool{true, false} {
		start := time.Now()
		_, err := say(c, "x", patience)
		if took := time.Since(start); err != nil || (slow && took < 200*time.Millisecond) {
			t.Errorf("answer %d after %v, %v", i, took, err)
		}
	}
}

// TestHarmsWhileConnectionsDie: harms come and go while clients break off in the
// middle of what they say, and the proxy is none the worse for it.
func TestHarmsWhileConnectionsDie(t *testing.T) {
	p, _ := proxied(t)
	stop := make(chan struct{})
	var talking sync.WaitGroup
	for range 8 {
		talking.Go(func() {
			for data := make([]byte, 4096); ; {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.Dial("tcp", p.Addr()); err == nil {
					for range rand.IntN(10) {
						_, _ = c.Write(data)
					}
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			}
		})
	}
	harms := []func(*Proxy) error{
		(*Proxy).BlackHole, (*Proxy).LoseReplies, (*Proxy).ForgetClients, (*Proxy).ForgetServer, (*Proxy).Refuse, (*Proxy).Cut,
		func(p *Proxy) error { return p.Reset(0.3) },
		func(p *Proxy) error { return p.Delay(5*time.Millisecond, time.Millisecond) },
		func(p *Proxy) error { return p.Throttle(50) },
		func(p *Proxy) error { return p.Dribble(64, 200*time.Microsecond) },
	}
	for i := range 10 * len(harms) {
		heal, err := p.Apart(harms[i%len(harms)])
		must(t, err)
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		must(t, heal())
	}
	close(stop)
	talking.Wait()
	if got, err := say(dial(t, p), "x", patience); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
