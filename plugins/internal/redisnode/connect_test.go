package redisnode

import (
	"net"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver/config"
)

// TestWriteTooLate checks that a write after its deadline returns at once, even if the server is
// silent. A longer wait would block a sender, and also Close, which waits for the senders.
func TestWriteTooLate(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const timeout = time.Minute
	source, err := config.NewSource(config.Connect{DialTimeout: timeout, RequestTimeout: timeout}, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c, err := dialer(timeout, source, &Links{})(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("written after the deadline")
	}
	if took := time.Since(began); took > timeout/2 {
		t.Errorf("the write took %v", took)
	}
}
