package ports

import (
	"errors"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestPortIsKeptUntilClose checks that a port stays reserved while its server is down.
func TestPortIsKeptUntilClose(t *testing.T) {
	mine, err := Take(1)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", mine.Addr(0)) // the server
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	other := &Taken{}
	if err := other.take(mine.Port(0)); err == nil {
		t.Errorf("port %d was handed out twice", mine.Port(0))
	}
	if err := errors.Join(mine.Close(), mine.Close()); err != nil {
		t.Fatal(err)
	}
	if err := other.take(mine.Port(0)); err != nil {
		t.Errorf("port %d is not given back: %v", mine.Port(0), err)
	}
	_ = other.Close()
}

func TestRangeKeepsClearOfOutgoingConnections(t *testing.T) {
	for file, want := range map[string][2]int{
		"32768\t60999\n": {16000, 32000}, "": {16000, 32000}, "15000 61000": {1024, 14999}, "1024 60000": {60001, 65535}, "1024 65535": {16000, 32000},
	} {
		if low, high := rangeOf([]byte(file), nil); [2]int{low, high} != want {
			t.Errorf("%q: %d to %d, want %v", strings.TrimSpace(file), low, high, want)
		}
	}
}

// TestPortIsFreeWhenHandedOut checks that a caller can listen on a new port at once, even while
// this process starts children, which inherit its sockets until they execute their programs.
func TestPortIsFreeWhenHandedOut(t *testing.T) {
	stop := make(chan struct{})
	var starters sync.WaitGroup
	for range 4 {
		starters.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run() // only its start matters
				}
			}
		})
	}
	for range 500 {
		taken, err := Take(1)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp4", taken.Addr(0))
		if err != nil {
			t.Error(err)
		} else {
			_ = l.Close()
		}
		_ = taken.Close()
	}
	close(stop)
	starters.Wait()
}
