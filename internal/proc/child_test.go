package proc

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

const testRole = "LOCKBENCH_TEST_CHILD"

func TestMain(m *testing.M) {
	Become(testRole, "test child", openTestChild)
	os.Exit(m.Run())
}

type line struct {
	Do string // greet, silent, crash, fail or count; the child sends other words back
	N  int
	At int64 // the time by the child's MachineClock
}

type testChild struct{ parent *Parent }

func openTestChild(p *Parent, l line) (Agent[line], error) {
	switch l.Do {
	case "silent":
		time.Sleep(timeout) // the test kills this process earlier
	case "crash":
		os.Exit(3)
	case "fail":
		return nil, errors.New("it was told to")
	}
	p.Send(l)
	return testChild{p}, nil
}

func (c testChild) Do(_ context.Context, l line) {
	switch l.Do {
	case "crash":
		os.Exit(3)
	case "count":
		for n := range l.N {
			c.parent.Send(line{N: n})
		}
	}
	l.At = MachineClock().Now()
	c.parent.Send(l)
}

func (testChild) Close() error { return nil }

const timeout = 30 * time.Second

// startChild starts a child, waits until it is ready, and returns a channel of its next lines.
func startChild(t *testing.T) (*Child, <-chan line) {
	t.Helper()
	c, said := &Child{Role: testRole}, make(chan line, 10_000)
	err := Start(t.Context(), c, line{Do: "greet"}, func(l line) { said <- l })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() }) // most tests have ended the child
	if l := <-said; l.Do != "greet" {
		t.Fatalf("before it is ready it says %+v", l)
	}
	return c, said
}

func await(t *testing.T, said <-chan line) (l line) {
	t.Helper()
	select {
	case l = <-said:
	case <-time.After(timeout):
		t.Fatal("the child says nothing")
	}
	return l
}

// TestChild checks that a child answers, that Close ends it and may be called twice, and that
// Crashed is true only after a crash.
func TestChild(t *testing.T) {
	for _, crashes := range []bool{false, true} {
		c, said := startChild(t)
		if err := c.Send(line{Do: "again", N: 2}); err != nil {
			t.Fatal(err)
		}
		if l := await(t, said); l.Do != "again" || l.N != 2 || !c.Alive() || c.Crashed() {
			t.Errorf("it says %+v; alive %t, crashed %t", l, c.Alive(), c.Crashed())
		}
		if crashes {
			if err := c.Send(line{Do: "crash"}); err != nil {
				t.Fatal(err)
			}
			<-c.Ended()
		}
		for range 2 {
			if err := c.Close(t.Context()); err != nil || c.Alive() || c.Crashed() != crashes {
				t.Errorf("closed: %v, alive %t, crashed %t, want %t", err, c.Alive(), c.Crashed(), crashes)
			}
		}
	}
}

func TestChildThatDoesNotStart(t *testing.T) {
	never := func(l line) { t.Errorf("it says %+v", l) }
	if err := Start(t.Context(), &Child{Role: testRole}, line{Do: "crash"}, never); !errors.Is(err, ErrEnded) {
		t.Errorf("a child that crashes: %v", err)
	}
	failed := &Child{Role: testRole}
	if err := Start(t.Context(), failed, line{Do: "fail"}, never); err == nil || err.Error() != "it was told to" || failed.Alive() {
		t.Errorf("a child that cannot start: %v, alive %t", err, failed.Alive())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent := &Child{Role: testRole}
	if err := Start(ctx, silent, line{Do: "silent"}, never); !errors.Is(err, context.DeadlineExceeded) || silent.Alive() {
		t.Errorf("a child that is not ready in time: %v, alive %t", err, silent.Alive())
	}
	if err := Start(t.Context(), &Child{Program: "/nowhere/child"}, line{}, never); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that is not there: %v", err)
	}
}

// TestKilledChild checks that no line of a child comes after Kill has returned.
func TestKilledChild(t *testing.T) {
	c, said := startChild(t)
	if err := c.Send(line{Do: "count", N: 5000}); err != nil {
		t.Fatal(err)
	}
	await(t, said)
	if err := c.Kill(); err != nil {
		t.Error(err)
	}
	if c.Alive() || c.Crashed() {
		t.Errorf("killed: alive %t, crashed %t", c.Alive(), c.Crashed())
	}
	taken := len(said)
	for n := 1; n <= taken; n++ {
		if l := <-said; l.Do == "" && l.N != n {
			t.Fatalf("line %d is %+v", n, l)
		}
	}
	select {
	case l := <-said:
		t.Errorf("after Kill comes %+v", l)
	case <-time.After(10 * time.Millisecond):
	}
	if err := c.Kill(); err != nil {
		t.Errorf("killed again: %v", err)
	}
}

// TestClocks checks that two processes read the same clock.
func TestClocks(t *testing.T) {
	c, said := startChild(t)
	for range 100 {
		before := MachineClock().Now()
		if err := c.Send(line{Do: "time"}); err != nil {
			t.Fatal(err)
		}
		l := await(t, said)
		// closely is the largest allowed difference between two processes' clocks, in nanoseconds.
		const closely = int64(time.Millisecond)
		if after := MachineClock().Now(); l.At < before-closely || l.At > after+closely {
			t.Fatalf("the child's clock shows %d between %d and %d", l.At, before, after)
		}
	}
	clock := MachineClock()
	if got := clock.Of(clock.Zero().Add(time.Minute)); got != int64(time.Minute) {
		t.Errorf("a minute after zero it showed %d", got)
	}
}
