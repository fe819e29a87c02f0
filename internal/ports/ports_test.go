package ports

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// A process of this test binary with this variable takes ports, prints them,
// and keeps them until its standard input ends.
const become = "LOCKBENCH_TEST_TAKES_PORTS"

const eachTakes = 40

func TestMain(m *testing.M) {
	if os.Getenv(become) != "" {
		os.Exit(taker())
	}
	os.Exit(m.Run())
}

func taker() int {
	var all sync.WaitGroup
	for range eachTakes / 2 {
		all.Go(func() {
			t, err := Take(2)
			if err != nil {
				panic(err)
			}
			fmt.Printf("%d\n%d\n", t.Port(0), t.Port(1))
		})
	}
	all.Wait()
	_ = os.Stdout.Close()
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// Many starters, in many goroutines of many processes, never share a port.
func TestPortsAreTakenOnce(t *testing.T) {
	owners := map[string]int{}
	var outs []io.Reader
	for range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), become+"=1")
		in, err := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err := errors.Join(err, outErr, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = in.Close()
			_ = cmd.Wait()
		})
		outs = append(outs, out)
	}
	for i, out := range outs {
		count := 0
		for lines := bufio.NewScanner(out); lines.Scan(); count++ {
			if other, taken := owners[lines.Text()]; taken {
				t.Errorf("processes %d and %d have port %s", other, i, lines.Text())
			}
			owners[lines.Text()] = i
		}
		if count != eachTakes {
			t.Errorf("process %d has %d ports", i, count)
		}
	}
}

// A port is kept while its server is down, and given back by Close.
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

// TestPortIsFreeWhenHandedOut: whoever gets a port can listen on it at once,
// while this process starts others, which have its sockets until they are
// programs of their own.
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
					_ = exec.Command("true").Run() // it is there to be started
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
