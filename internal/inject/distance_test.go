package inject

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"
)
func BenchmarkDistance(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { b.Fatal(err) }
	go func() { c, err := l.Accept(); if err == nil { io.Copy(c, c) } }()
	p, err := NewProxy(l.Addr().String())
	if err != nil { b.Fatal(err) }
	c, err := net.Dial("tcp", p.Addr())
	if err != nil { b.Fatal(err) }
	for _, rtt := range []time.Duration{0, 500*time.Microsecond, 2*time.Millisecond} {
		p.SetDistance(rtt)
		var ds []time.Duration
		buf := make([]byte, 64)
		for range 3000 {
			t := time.Now(); c.Write(buf); io.ReadFull(c, buf); ds = append(ds, time.Since(t)-rtt)
		}
		slices.Sort(ds)
		b.Logf("rtt %v: p10 %v p50 %v p90 %v p99 %v", rtt, ds[300], ds[1500], ds[2700], ds[2970])
	}
}
