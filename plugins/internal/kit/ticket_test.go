package kit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestTicket(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		what string
		do   func(*Ticket)
		ctx  context.Context
		want Outcome
	}{
		{"answered", func(x *Ticket) { x.Claim(); x.End() }, t.Context(), Answered},
		{"answered, and ctx has ended too", func(x *Ticket) { x.Claim(); x.End() }, ended, Answered},
		{"given up before it was sent", func(*Ticket) {}, ended, NotSent},
		{"given up after it was sent", func(x *Ticket) { x.Claim() }, ended, Unknown},
		{"given up when nothing was done of it", func(x *Ticket) { x.Claim(); x.Unclaim() }, ended, NotSent},
	} {
		var x Ticket
		x.Open()
		c.do(&x)
		if got := x.Wait(c.ctx); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		if x.GivenUp() != (c.want == NotSent) {
			t.Errorf("%s: given up is %t", c.what, x.GivenUp())
		}
		if x.Claim() {
			t.Errorf("%s: it can be claimed afterwards", c.what)
		}
	}
}

func TestTicketWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x Ticket
		x.Open()
		go func() {
			time.Sleep(time.Second)
			x.Claim()
			time.Sleep(time.Second)
			x.End()
		}()
		began := time.Now()
		if got := x.Wait(t.Context()); got != Answered || time.Since(began) != 2*time.Second {
			t.Errorf("%v after %v", got, time.Since(began))
		}
	})
}
