// Command holder is a small application for tests. It acquires a lock and holds it until SIGTERM.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
)

// The arguments are the path of a plugin, the address of its store, and the TTL of the lock.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ttl, err := time.ParseDuration(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	b, err := plugin.Open(ctx, filepath.Base(os.Args[1])[len("lockplugin-"):], &plugin.Options{
		Path: os.Args[1], Config: map[string]string{"address": os.Args[2]}, StartTimeout: 30 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	c := core.New(b, nil)
	l, err := c.Lock("app", &core.LockOptions{TTL: ttl})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := l.Acquire(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("held")
	<-ctx.Done()
	if err := c.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
	os.Exit(7)
}
