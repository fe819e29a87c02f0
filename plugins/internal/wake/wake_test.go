package wake

import "testing"

func TestAll(t *testing.T) {
	var a All
	a.Up() // nobody waits
	first, second := a.Next(), a.Next()
	select {
	case <-first:
		t.Error("a call before Next woke")
	default:
	}
	a.Up()
	<-first
	<-second
	select {
	case <-a.Next():
		t.Error("the next change is over")
	default:
	}
}
