package inject

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestProxyPassesAndHeals(t *testing.T) {
	for name, harm := range map[string]func(*Proxy) error{
		"nothing":   func(*Proxy) error { return nil },
		"delay":     func(p *Proxy) error { return p.Delay(20*time.Millisecond, 0) },
		"throttle":  func(p *Proxy) error { return p.Throttle(100) },
		"fragment":  func(p *Proxy) error { return p.Fragment(1, 100*time.Microsecond) },
		"reset few": func(p *Proxy) error { return p.Reset(0) },
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := proxied(t)
			c := dial(t, p)
			for _, when := range []string{"before", "with the harm", "healed"} {
				if got, err := say(c, when, timeout); got != when || err != nil {
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

// TestHealWhileAProcessStarts checks that Heal waits as long as the port is in use.
// A process that is being started may hold the closed listening socket for a moment.
func TestHealWhileAProcessStarts(t *testing.T) {
	p, _ := proxied(t)
	must(t, p.Refuse())
	inherited, err := net.Listen("tcp", p.Addr())
	must(t, err)
	healed := make(chan error, 1)
	go func() { healed <- p.Heal() }()
	select {
	case err := <-healed:
		t.Fatalf("healed while another listens: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	must(t, inherited.Close())
	must(t, <-healed)
	if got, err := say(dial(t, p), "x", timeout); got != "x" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestObserve checks that Observe sees the data of both directions, even after harms were healed.
// If the function seen begins a harm, the harm must apply to the piece that seen was called for.
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
		if _, err := say(c, "x", timeout); err != nil {
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

// If one of two equal harms is healed, the other must go on. SlowStart delays only first messages.
func TestApart(t *testing.T) {
	p, _ := proxied(t)
	must(t, p.SlowStart(200*time.Millisecond))
	c := dial(t, p)
	slow := func(p *Proxy) error { return p.Delay(150*time.Millisecond, 0) }
	first, err := p.Apart(slow)
	must(t, err)
	second, err := p.Apart(slow)
	must(t, err)
	for _, want := range []time.Duration{700, 300, 150, 0} {
		start := time.Now()
		if _, err := say(c, "x", timeout); err != nil || time.Since(start) < want*time.Millisecond {
			t.Errorf("answered after %v, %v; want %v", time.Since(start), err, want*time.Millisecond)
		}
		switch want {
		case 300:
			must(t, first())
		case 150:
			must(t, second())
		}
	}
}

// TestHarmsWhileConnectionsDie checks that the proxy still works after many harms were begun
// and healed, while clients reset connections in the middle of their data.
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
		(*Proxy).BlackHole, (*Proxy).LoseReplies, (*Proxy).ForgetClients, (*Proxy).ForgetServer, (*Proxy).HoldConnections, (*Proxy).Refuse, (*Proxy).Cut,
		func(p *Proxy) error { return p.Reset(0.3) },
		func(p *Proxy) error { return p.Delay(5*time.Millisecond, time.Millisecond) },
		func(p *Proxy) error { return p.Throttle(50) },
		func(p *Proxy) error { return p.Fragment(64, 200*time.Microsecond) },
	}
	for i := range 10 * len(harms) {
		heal, err := p.Apart(harms[i%len(harms)])
		must(t, err)
		time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
		must(t, heal())
	}
	close(stop)
	talking.Wait()
	if got, err := say(dial(t, p), "x", timeout); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestLead checks that Lead gives new connections to the servers in
// turn, and that open connections keep their server until Retarget.
func TestLead(t *testing.T) {
	p, first := proxied(t)
	stays := dial(t, p)
	for _, tt := range []struct {
		to   []*echo
		want []int // bytes that each server gets from the old and two new connections
	}{
		{nil, []int{3}},
		{[]*echo{startEcho(t)}, []int{1, 2}},
		{[]*echo{startEcho(t), startEcho(t)}, []int{1, 1, 1}},
	} {
		var at []string
		for _, e := range tt.to {
			at = append(at, e.listener.Addr().String())
		}
		if len(at) > 0 {
			must(t, p.Lead(at...))
		}
		before := first.got()
		for _, c := range []net.Conn{stays, dial(t, p), dial(t, p)} {
			if got, err := say(c, "x", timeout); got != "x" || err != nil {
				t.Fatalf("%q, %v", got, err)
			}
		}
		got := []int{first.got() - before}
		for _, e := range tt.to {
			got = append(got, e.got())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("led to %v, the servers got %v bytes, want %v", at, got, tt.want)
		}
	}
	must(t, p.Retarget(first.listener.Addr().String()))
	if _, err := say(stays, "x", timeout); err == nil {
		t.Error("retargeted, and an old connection is not cut")
	}
	if got, err := say(dial(t, p), "x", timeout); got != "x" || err != nil {
		t.Errorf("retargeted: %q, %v", got, err)
	}
}
