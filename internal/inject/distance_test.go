package inject

import (
	"io"
	"testing"
	"time"
)

// TestDistance: what passes is half of the round trip later in each direction, also
// after healing.
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

// BenchmarkDistance is how much longer than asked a round trip takes.
func BenchmarkDistance(b *testing.B) {
	for _, rtt := range []time.Duration{0, 500 * time.Microsecond, 2 * time.Millisecond} {
		b.Run(rtt.String(), func(b *testing.B) {
			p, _ := proxied(b)
			c := dial(b, p)
			p.SetDistance(rtt)
			message := make([]byte, 64)
			for b.Loop() {
				if _, err := c.Write(message); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(c, message); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed()/time.Duration(b.N)-rtt), "late-ns/op")
		})
	}
}
