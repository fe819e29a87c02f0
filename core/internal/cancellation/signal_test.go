package cancellation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

type request struct{ Signal }

func (*request) Deadline() (time.Time, bool) { return time.Time{}, false }
func (*request) Value(any) any               { return nil }

func TestSignalEndsOnce(t *testing.T) {
	r := &request{}
	before := r.Done()
	if r.Err() != nil {
		t.Fatalf("Err before its end: %v", r.Err())
	}
	r.Cancel(context.DeadlineExceeded)
	r.Cancel(context.Canceled)
	for _, done := range []<-chan struct{}{before, r.Done()} {
		select {
		case <-done:
		default:
			t.Error("Done is open after the end")
		}
	}
	if r.Err() != context.DeadlineExceeded {
		t.Errorf("Err is %v, want that of the first Cancel", r.Err())
	}
	late := &request{}
	late.Cancel(context.Canceled)
	select {
	case <-late.Done():
	default:
		t.Error("Done, first asked for after the end, is open")
	}
}

func TestSignalAfterFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &request{}
		ran := map[string]int{}
		note := func(name string) func() { return func() { ran[name]++ } }
		r.AfterFunc(note("kept"))
		if stop := r.AfterFunc(note("stopped")); !stop() || stop() {
			t.Error("stop of a waiting function must report true, once")
		}
		r.Cancel(context.Canceled)
		synctest.Wait()
		if stop := r.AfterFunc(note("late")); stop() {
			t.Error("stop after the end reports true")
		}
		synctest.Wait()
		if ran["kept"] != 1 || ran["stopped"] != 0 || ran["late"] != 1 {
			t.Errorf("calls: %v, want kept and late once each", ran)
		}
	})
}

func TestSignalAsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &request{}
		child, cancel := context.WithCancelCause(r)
		defer cancel(nil)
		r.Cancel(context.DeadlineExceeded)
		synctest.Wait()
		if !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("the child's Err is %v", child.Err())
		}
	})
}
