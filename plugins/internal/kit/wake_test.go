package kit

import (
	"testing"
)

func TestBroadcast(t *testing.T) {
	var b Broadcast
	b.Up() // must wake no later waiter
	first, second := b.Next(), b.Next()
	select {
	case <-first:
		t.Error("a call before Next woke")
	default:
	}
	b.Up()
	<-first
	<-second
	select {
	case <-b.Next():
		t.Error("the next change is over")
	default:
	}
}
