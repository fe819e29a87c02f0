package inject

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

func TestDelayDelays(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	must(t, p.Delay(200*time.Millisecond, 0))
	start := time.Now()
	if _, err := say(c, "x", timeout); err != nil || time.Since(start) < 150*time.Millisecond {
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
			if _, err := say(c, "before", timeout); err != nil {
				t.Fatal(err)
			}
			must(t, tt.harm(p))
			if got, err := say(c, "during", brief); got != "" || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("answered %q, %v; want silence", got, err)
			}
			for deadline := time.Now().Add(timeout); e.got() < len(tt.want) && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			if e.got() != len(tt.want) {
				t.Errorf("the server got %d bytes, want those of %q", e.got(), tt.want)
			}
			must(t, p.Heal())
			if got, err := say(dial(t, p), "after", timeout); got != "after" || err != nil {
				t.Errorf("after healing: %q, %v", got, err)
			}
		})
	}
}

func TestResetIsSeen(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	if _, err := say(c, "before", timeout); err != nil {
		t.Fatal(err)
	}
	must(t, p.Reset(1))
	if got, err := say(c, "during", timeout); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%q, %v; want a broken connection", got, err)
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
	must(t, s.SetReadDeadline(time.Now().Add(timeout)))
	if _, err := s.Read(one); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the end of the proxy: %v, want a broken connection", err)
	}
}

func TestRefuse(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	for range 2 {
		must(t, p.Refuse())
	}
	if _, err := say(c, "x", timeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v on an open connection, want a reset", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, want a refusal", err)
	}
	must(t, p.Heal())
	if got, err := say(dial(t, p), "x", timeout); got != "x" || err != nil {
		t.Errorf("after healing: %q, %v", got, err)
	}
}

func TestCut(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	if _, err := say(c, "x", timeout); err != nil {
		t.Fatal(err)
	}
	must(t, p.Cut())
	if _, err := say(c, "x", timeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want a reset", err)
	}
	if got, err := say(dial(t, p), "x", timeout); got != "x" || err != nil {
		t.Errorf("a new connection: %q, %v", got, err)
	}
}

// TestHeldConnection: what a client has sent over a connection that is held
// arrives when it is healed, after what came over a new one, and although the
// client has ended the first.
func TestHeldConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	p, err := NewProxy(l.Addr().String())
	must(t, err)
	defer func() { must(t, p.Close()) }()
	pair := func() (client, server net.Conn) {
		client = dial(t, p)
		server, err := l.Accept()
		must(t, err)
		t.Cleanup(func() { server.Close() })
		return client, server
	}
	sent := func(c net.Conn, s string) {
		t.Helper()
		_, err := io.WriteString(c, s)
		must(t, err)
	}
	read := func(c net.Conn, wait time.Duration) string {
		t.Helper()
		must(t, c.SetReadDeadline(time.Now().Add(wait)))
		b := make([]byte, 16)
		n, _ := c.Read(b)
		return string(b[:n])
	}
	old, far := pair()
	sent(old, "before")
	if got := read(far, timeout); got != "before" {
		t.Fatalf("got %q", got)
	}
	must(t, p.HoldConnections())
	sent(old, "held")
	must(t, old.Close())
	young, near := pair()
	sent(young, "new")
	if got := read(near, timeout); got != "new" {
		t.Errorf("a new connection: %q", got)
	}
	if got := read(far, brief); got != "" {
		t.Errorf("%q passed", got)
	}
	must(t, p.Heal())
	if got := read(far, timeout); got != "held" {
		t.Errorf("after healing: %q", got)
	}
}

// TestSilence: all connections but the newest are dead, and only that is seen when
// it is healed; new ones work.
func TestSilence(t *testing.T) {
	p, _ := proxied(t)
	var open []net.Conn
	for range 3 {
		c := dial(t, p)
		if got, err := say(c, "x", timeout); got != "x" || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
		open = append(open, c)
	}
	must(t, p.Silence())
	for i, c := range append(open, dial(t, p)) {
		wait := timeout
		if i < 2 {
			wait = brief
		}
		if got, err := say(c, "y", wait); (got == "y") != (i >= 2) {
			t.Errorf("connection %d: %q, %v", i, got, err)
		}
	}
	must(t, p.Heal())
	for i, c := range open[:2] {
		if _, err := say(c, "z", timeout); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d does not end: %v", i, err)
		}
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
		if silent(ended, timeout) || !silent(open, brief) {
			t.Errorf("of clients %v: one must have ended, the other not", ofClients)
		}
		pair()
		must(t, p.Heal())
		if silent(open, timeout) {
			t.Errorf("of clients %v: still open after healing", ofClients)
		}
		must(t, p.Close())
	}
}
