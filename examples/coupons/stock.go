package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/fence"
)

// stock is the resource: how many coupons are left. Nothing in it keeps two
// shops from reading the same number and both writing one less.
type stock struct{ left atomic.Int64 }

func stockMain(fs *flag.FlagSet, args []string) {
	listen := fs.String("listen", "127.0.0.1:7700", "address to serve on")
	coupons := fs.Int64("coupons", 1000, "how many coupons there are")
	checked := fs.Bool("check", true, "refuse writes without a token, and stale ones")
	_ = fs.Parse(args) // it ends the process
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serveStock(ctx, *listen, *coupons, *checked)
	stop()
	if err != nil {
		fail(err)
	}
}

func serveStock(ctx context.Context, address string, coupons int64, checked bool) error {
	var s stock
	s.left.Store(coupons)
	var write http.Handler = http.HandlerFunc(s.write)
	if checked {
		write = fence.Handler(&fence.Guard{}, func(*http.Request) string { return "coupons" }, write)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /left", s.read)
	mux.Handle("PUT /left", write)
	return serve(ctx, address, mux)
}

// serve says on which address it listens, and serves until ctx ends and the
// requests under way are answered.
func serve(ctx context.Context, address string, h http.Handler) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("serving on http://%s\n", l.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err = <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = server.Shutdown(ending)
	<-served
	return err
}

func (s *stock) read(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, s.left.Load())
}

func (s *stock) write(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 32))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	left, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.left.Store(left)
}
