// Package clustertest lets tests use parts of the etcd backend without etcd.
package clustertest

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
)

// Nowhere is an address on which no server listens.
const Nowhere = "http://127.0.0.1:1"

// At returns a Cluster of the members at addrs, which are addresses with a scheme. The Cluster is
// closed when the test ends.
func At(t testing.TB, addrs ...string) *cluster.Cluster {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	connect := config.Connect{DialTimeout: time.Second, RequestTimeout: 3 * time.Second}
	source, err := config.NewSource(connect, false, log)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster.New(cluster.Options{Address: addrs, Connect: connect, Source: source, Logger: log, Probe: "probe"})
	t.Cleanup(func() { _ = c.Close(context.Background(), func() {}) })
	return c
}

// Member starts a member in this process and returns its address. The function
// register adds the member's services.
func Member(t testing.TB, register func(*grpc.Server)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return "http://" + l.Addr().String()
}
