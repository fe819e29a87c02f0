package frame

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// ready is a backend that answers at once, but an acquire of the lock "slow" takes half a second.
type ready struct{ driver.Backend }

func (ready) Properties() driver.Properties { return driver.Properties{Name: "ready"} }

func (ready) TryAcquire(_ context.Context, r driver.Request) (uint64, error) {
	if r.Name == "slow" {
		time.Sleep(500 * time.Millisecond)
	}
	return 1, nil
}

type readyHost struct{}

func (readyHost) Configure(context.Context, wire.Setup) (wire.Opened, error) {
	return wire.Opened{Backend: ready{}}, nil
}
func (readyHost) SessionBegan() (ended func()) { return func() {} }
func (readyHost) Close(context.Context) error  { return nil }

// TestMain is also the main function of a process that plays the plugin in the benchmarks.
func TestMain(m *testing.M) {
	if dir := os.Getenv("FRAME_BENCH_DIR"); dir != "" {
		farMain(dir)
	}
	os.Exit(m.Run())
}

func farMain(dir string) {
	data, err := Listen(filepath.Join(dir, "data"))
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("unix", filepath.Join(dir, "grpc"))
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	wire.Register(server, readyHost{}, nil, nil)
	go func() { _ = data.Serve(ready{}, nil, func(err error) { panic(err) }, os.Getppid()) }()
	fmt.Println("ready")
	if err := server.Serve(listener); err != nil {
		panic(err)
	}
}

// BenchmarkCall measures one TryAcquire on a backend in another process.
func BenchmarkCall(b *testing.B) {
	unary, framed := links(b)
	for _, callers := range []int{1, 8, 64} {
		for _, v := range []struct {
			name string
			link driver.Lock
		}{{"unary", unary}, {"framed", framed}} {
			b.Run(fmt.Sprintf("wire=%s/callers=%d", v.name, callers), func(b *testing.B) { benchCalls(b, v.link, callers) })
		}
	}
}

// BenchmarkCodec measures the encoding and decoding of a request and of its
// reply. The result is the sum for host and plugin.
func BenchmarkCodec(b *testing.B) {
	r := driver.Request{Name: "bench/lock-00017", Owner: "0123456789abcdefghijkl", Label: "host:1234", Token: 1 << 17, TTL: 10 * time.Second}
	ops := slices.Repeat([]driver.Op{{Kind: driver.OpRenew, Request: r}}, 64)
	for name, m := range map[string]message{
		"acquire": {kind: kindAcquire, request: r}, "release": {kind: kindRelease, request: r}, "batch=64": {kind: kindBatch, ops: ops},
	} {
		reply := answer{token: 1 << 17, results: make([]driver.Result, len(m.ops))}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var c coder
			for p := []byte(nil); b.Loop(); {
				var read message
				p = m.append(p[:0], 3)
				id, err := c.readRequest(p, &read)
				p = appendAnswer(p[:0], id, read.kind, &reply, nil)
				if err = errors.Join(err, readAnswer(p[1:], read.kind, len(m.ops), &answer{})); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func links(b *testing.B) (*wire.Unary, *Link) {
	b.Helper()
	dir, pid := startFar(b)
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "grpc"), append(wire.DialOptions(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	unary := wire.NewUnary(conn)
	if _, err := unary.Configure(b.Context(), wire.Setup{}); err != nil {
		b.Fatal(err)
	}
	framed, err := Dial(b.Context(), filepath.Join(dir, "data"), pid, unary, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(framed.Close)
	return unary, framed
}

// BenchmarkHeadOfLine measures quick calls while 0, 1 or 16 slow requests are under way.
func BenchmarkHeadOfLine(b *testing.B) {
	_, framed := links(b)
	for _, slow := range []int{0, 1, 16} {
		b.Run(fmt.Sprint("slow=", slow), func(b *testing.B) {
			ctx, stop := context.WithCancel(b.Context())
			var work sync.WaitGroup
			for range slow {
				work.Go(func() {
					for ctx.Err() == nil {
						_, _ = framed.TryAcquire(ctx, driver.Request{Name: "slow"}) // ends with ctx
					}
				})
			}
			benchCalls(b, framed, 64)
			stop()
			work.Wait()
		})
	}
}

func benchCalls(b *testing.B, link driver.Lock, callers int) {
	b.ReportAllocs()
	var next atomic.Int64
	var work sync.WaitGroup
	took := make([][]time.Duration, callers)
	for i := range callers {
		work.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			r := driver.Request{Name: "a-lock", Owner: "0123456789abcdefghijkl", Label: "host:1234", TTL: 10 * time.Second}
			for next.Add(1) <= int64(b.N) {
				began := time.Now()
				if _, err := link.TryAcquire(ctx, r); err != nil {
					b.Error(err)
					return
				}
				took[i] = append(took[i], time.Since(began))
			}
		})
	}
	work.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(float64(all[len(all)/2]), "p50-ns")
	b.ReportMetric(float64(all[len(all)*99/100]), "p99-ns")
}
