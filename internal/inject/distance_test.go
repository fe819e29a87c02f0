package inject

import (
	"io"
	"testing"
	"time"
)

// TestDistance checks that a request and its reply together take at
// least the simulated round trip, and that Heal does not end this delay.
func TestDistance(t *testing.T) {
	p, _ := proxied(t)
	c := dial(t, p)
	const rtt = 20 * time.Millisecond
	p.SetDistance(rtt)
	must(t, p.Heal())
	began := time.Now()
	_, err := c.Write([]byte("abc"))
	must(t, err)
	got := make([]byte, 3)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "abc" {
		t.Fatalf("%q, %v", got, err)
	}
	if took := time.Since(began); took < rtt {
		t.Errorf("it took %v", took)
	}
}
