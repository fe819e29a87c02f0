// Package backendtest has helpers that the tests of several backends need.
package backendtest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
)

// Timeout is the longest time that a test waits for an event, even on a busy machine.
const Timeout = 30 * time.Second

// Long skips a conformance test that runs a backend in the test process, unless LOCKBENCH_LONG is
// 1. The plugin's conformance test covers the same code, and can use the race detector too.
func Long(t *testing.T) {
	if os.Getenv("LOCKBENCH_LONG") != "1" {
		t.Skip("LOCKBENCH_LONG=1 plays it")
	}
}

// Must fails the test when err is not nil.
func Must(t drivertest.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Eventually calls ok until it returns true. After [Timeout], it fails the test.
func Eventually(t drivertest.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Timeout); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", Timeout, what)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%v", t.Context().Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// Request returns a request for the lock called name, by the given owner and with a TTL of 10 s.
func Request(name, owner string) driver.Request {
	return driver.Request{Name: name, Owner: owner, Label: "host-1:77", TTL: 10 * time.Second}
}

// Acquire acquires the lock r.Name, which must be free. It returns r with the grant's token.
func Acquire(t drivertest.T, b driver.Lock, r driver.Request) driver.Request {
	t.Helper()
	token, err := b.TryAcquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q by %s: %v", r.Name, r.Owner, err)
	}
	r.Token = token
	return r
}

// Held returns the holder that err names. It fails the test if err is not a HeldError.
func Held(t drivertest.T, err error) driver.Holder {
	t.Helper()
	var e *driver.HeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a HeldError", err)
	}
	return e.Holder
}

// NotHeld returns the holder that err names. It fails the test if err is not a NotHeldError.
func NotHeld(t drivertest.T, err error) driver.Holder {
	t.Helper()
	var e *driver.NotHeldError
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a NotHeldError", err)
	}
	return e.Holder
}

// CloseAfter closes the backend b when the test ends, and returns b.
func CloseAfter[B driver.Backend](t drivertest.T, b B) B {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Timeout)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// Err returns only the error of a call that has two results.
func Err[T any](_ T, err error) error { return err }
