package core

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeBoot is a clock that goes on in a suspend. A test adds a suspend's duration to ahead.
type fakeBoot struct {
	base   time.Time
	ahead  atomic.Int64 // nanoseconds; atomic, because a client's scheduler also reads it
	jitter time.Duration
}

func (b *fakeBoot) read() (time.Duration, bool) {
	return time.Since(b.base) + time.Duration(b.ahead.Load()) + b.jitter, true
}

func TestL2ClockCountsSuspend(t *testing.T) {
	boot := &fakeBoot{base: time.Now()}
	var c clock
	c.init(boot.read)
	first := c.now()
	boot.ahead.Store(int64(time.Hour))
	if early := c.early(); early.sub(first) > time.Minute {
		t.Errorf("early asked the kernel: %v", early.sub(first))
	}
	if grown := c.now().sub(first); grown < time.Hour-noise || grown > time.Hour+time.Minute {
		t.Errorf("an hour of suspend counts as %v", grown)
	}
	if grown := c.early().sub(first); grown < time.Hour-noise {
		t.Errorf("early does not know what now has seen: %v", grown)
	}
	if off := time.Until(c.time(c.now().add(time.Minute))); off > time.Minute || off < 59*time.Second {
		t.Errorf("an instant in a minute is %v away", off)
	}
}

func TestL2ClockIgnoresNoise(t *testing.T) {
	boot := &fakeBoot{base: time.Now()}
	var c clock
	c.init(boot.read)
	for range 1000 {
		boot.jitter = -boot.jitter + 100*time.Microsecond
		before := c.now()
		if after := c.now(); after < before {
			t.Fatalf("the clock went back by %v", before.sub(after))
		}
	}
	if s := time.Duration(c.suspended.Load()); s != 0 {
		t.Errorf("%v of noise were counted", s)
	}
}

func TestL2ClockFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		c.init(bootTime)
		time.Sleep(time.Hour)
		if got := c.now(); got != instant(time.Hour) {
			t.Errorf("an hour in the bubble is %v", time.Duration(got))
		}
	})
}

func TestL3SuspendedMachineFindsItsLeaseExpired(t *testing.T) {
	c, _ := open(t, newFake())
	boot := &fakeBoot{base: time.Now()}
	c.clock.init(boot.read)
	lease := acquire(t, lockOf(t, c, "a", nil))
	other := acquire(t, lockOf(t, c, "b", nil))
	boot.ahead.Store(int64(time.Minute))
	if other.Valid() {
		t.Error("valid on the first call after a suspend past the deadline")
	}
	if !isDone(lease.done) || !isDone(other.done) {
		t.Error("a call returned before Done of every overdue lease was closed")
	}
	if CauseName(lease.Err()) != "expired" {
		t.Errorf("cause %v", lease.Err())
	}
}

// TestAcquireAfterSuspend suspends the machine of an idle client before an acquire. The client must
// not count the suspend as time that the store needed to answer.
func TestAcquireAfterSuspend(t *testing.T) {
	f := newFake()
	c, _ := open(t, f)
	boot := &fakeBoot{base: time.Now()}
	c.clock.init(boot.read)
	lock := lockOf(t, c, "a", nil)
	boot.ahead.Store(int64(time.Hour))
	if _, err := lock.TryAcquire(t.Context()); err != nil {
		t.Error(err)
	}
	if n := f.count("withdraw"); n > 0 {
		t.Errorf("withdrawn %d times", n)
	}
}

func TestDeadlineAllowances(t *testing.T) {
	for _, tc := range []struct{ ttl, drift, lead time.Duration }{
		{10 * time.Second, 102 * time.Millisecond, 5 * time.Millisecond},
		{time.Second, 12 * time.Millisecond, 5 * time.Millisecond},
		{10 * time.Millisecond, time.Millisecond, 200 * time.Microsecond},
	} {
		if d, l := driftOf(tc.ttl), leadOf(tc.ttl); d != tc.drift || l != tc.lead || lifeOf(tc.ttl) != tc.ttl-d-l {
			t.Errorf("TTL %v: drift %v, lead %v", tc.ttl, d, l)
		}
	}
}
