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

// stock is the resource: the number of coupons left. Without a lock, two shops
// may read the same number, and both write one less.
type stock struct {
	left  atomic.Int64
	guard *fence.Guard // if nil, every write is accepted
}

func stockMain(fs *flag.FlagSet, args []string) {
	listen := fs.String("listen", "127.0.0.1:7700", "address to serve on")
	coupons := fs.Int64("coupons", 1000, "how many coupons there are")
	checked := fs.Bool("check", true, "refuse writes without a token, and stale ones")
	_ = fs.Parse(args) // an error ends the process
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
	if checked {
		s.guard = &fence.Guard{}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /left", s.read)
	mux.Handle("POST /left", s.guarded(s.read))
	mux.Handle("PUT /left", s.guarded(s.write))
	return serve(ctx, address, mux)
}

// guarded returns h behind the stock's guard, if any. The guard refuses missing and stale tokens.
func (s *stock) guarded(h http.HandlerFunc) http.Handler {
	if s.guard == nil {
		return h
	}
	return fence.Handler(s.guard, func(*http.Request) string { return "coupons" }, h)
}

// serve prints its address, and serves until ctx ends. Then it waits at most 5 s for the requests
// in progress.
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
	if s.guard == nil {
		s.left.Store(left)
		return
	}
	// Guard.Do checks the token again, and allows no other write between this check and the write.
	token, _ := strconv.ParseUint(r.Header.Get(fence.Header), 10, 64) // guarded has parsed it
	err = s.guard.Do("coupons", token, func() error { s.left.Store(left); return nil })
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
