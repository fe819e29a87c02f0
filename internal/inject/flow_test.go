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

// TestSwallowed checks two harms. A black hole lets no request reach the server, and LoseReplies
// drops only the replies. The client sees no error. After healing, new connections work.
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

// TestBroken checks that each harm breaks an open connection. A
// refusal must also reject new connections until it is healed.
func TestBroken(t *testing.T) {
	for name, harm := range map[string]func(*Proxy) error{
		"reset": func(p *Proxy) error { return p.Reset(1) },
		"cut":   (*Proxy).Cut,
		"refuse": func(p *Proxy) error {
			err := errors.Join(p.Refuse(), p.Refuse())
			if _, refused := net.Dial("tcp", p.Addr()); !errors.Is(refused, syscall.ECONNREFUSED) {
				err = errors.Join(err, errors.New("it is not refused"), refused)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := proxied(t)
			c := dial(t, p)
			if _, err := say(c, "before", timeout); err != nil {
				t.Fatal(err)
			}
			must(t, harm(p))
			if got, err := say(c, "during", timeout); got != "" || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%q, %v; want a broken connection", got, err)
			}
			must(t, p.Heal())
			if got, err := say(dial(t, p), "after", timeout); got != "after" || err != nil {
				t.Errorf("after healing: %q, %v", got, err)
			}
		})
	}
}

// TestHoleHidesDeath checks that a black hole hides from the server that the client
// has closed its connection. The server must see the end when the proxy is closed.
func TestHoleHidesDeath(t *testing.T) {
	p, pair := paired(t)
	c, s := pair()
	must(t, p.BlackHole())
	c.Close()
	if !silent(t, s, brief) {
		t.Error("the server has seen the end")
	}
	must(t, p.Close())
	if silent(t, s, timeout) {
		t.Error("after the end of the proxy the connection is not broken")
	}
}

// TestHeldConnection checks that held data arrive after healing, even if the client
// has closed the connection. Data on a new connection must arrive before healing.
func TestHeldConnection(t *testing.T) {
	p, pair := paired(t)
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

// TestSilence checks Silence: all open connections except the newest must pass no data, clients
// must see these connections end only after healing, and new connections must work.
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

// TestForgotten checks ForgetClients and ForgetServer: a connection must end at once on
// one side, and on the other side only after healing. Meanwhile new connections must work.
func TestForgotten(t *testing.T) {
	for _, ofClients := range []bool{true, false} {
		p, pair := paired(t)
		ended, open := pair()
		forget := (*Proxy).ForgetClients
		if !ofClients {
			ended, open = open, ended
			forget = (*Proxy).ForgetServer
		}
		must(t, forget(p))
		if silent(t, ended, timeout) || !silent(t, open, brief) {
			t.Errorf("of clients %v: one must have ended, the other not", ofClients)
		}
		pair()
		must(t, p.Heal())
		if silent(t, open, timeout) {
			t.Errorf("of clients %v: still open after healing", ofClients)
		}
	}
}
