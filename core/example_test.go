package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/plugins/memory"
)

// client returns a client of the store. Programs open their backend with plugin.Open; these
// examples use a store in memory.
func client(store *memory.Store, label string) *core.Client {
	return core.New(store.Open(), &core.Options{Label: label, Logger: slog.New(slog.DiscardHandler)})
}

// The lock is held while the function runs, and released when it returns. The
// ctx of the function ends when the lease is lost.
func ExampleLock_Do() {
	ctx := context.Background()
	c := client(memory.NewStore(), "billing-1")
	defer c.Close(ctx)
	lock, err := c.Lock("jobs/refresh", &core.LockOptions{TTL: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	err = lock.Do(ctx, func(ctx context.Context, lease *core.Lease) error {
		fmt.Println("refreshing", lease.Name(), ctx.Err())
		return nil
	})
	fmt.Println(err)
	// Output:
	// refreshing jobs/refresh <nil>
	// <nil>
}

// At most one host runs the job. The other hosts skip the job, and know which host runs it.
func ExampleLock_TryDo() {
	ctx := context.Background()
	store := memory.NewStore()
	blue, green := client(store, "blue"), client(store, "green")
	defer blue.Close(ctx)
	defer green.Close(ctx)
	ofBlue, _ := blue.Lock("jobs/report", nil)
	ofGreen, _ := green.Lock("jobs/report", nil)

	err := ofBlue.TryDo(ctx, func(ctx context.Context, _ *core.Lease) error {
		err := ofGreen.TryDo(ctx, func(context.Context, *core.Lease) error { panic("never") })
		var held *core.HeldError
		if errors.As(err, &held) {
			fmt.Println("green skips it:", held.Holder.Label, "is running it")
		}
		return nil
	})
	fmt.Println("blue:", err)
	// Output:
	// green skips it: blue is running it
	// blue: <nil>
}

// The caller of Acquire releases the lease itself. Acquire is for work that is not in one function.
func ExampleLock_Acquire() {
	ctx := context.Background()
	c := client(memory.NewStore(), "app-1")
	defer c.Close(ctx)
	lock, _ := c.Lock("printer", nil)
	lease, err := lock.Acquire(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println("valid:", lease.Valid())
	if err := lease.Release(ctx); err != nil {
		panic(err)
	}
	<-lease.Done()
	fmt.Println("ended:", core.CauseName(lease.Err()))
	// Output:
	// valid: true
	// ended: released
}

// A leader publishes a value that other hosts can read.
func ExampleElector_Run() {
	ctx, stop := context.WithCancel(context.Background())
	c := client(memory.NewStore(), "app-1")
	defer c.Close(context.Background())
	election, err := c.Elector("leader", &core.ElectorOptions{Value: []byte("10.0.0.7:8080")})
	if err != nil {
		panic(err)
	}
	err = election.Run(ctx, func(term *core.Term) {
		leader, _ := election.Leader(term.Context())
		fmt.Printf("%s leads at %s\n", leader.Label, leader.Value)
		stop() // a real leader works until the term's context ends
		<-term.Context().Done()
	})
	fmt.Println(errors.Is(err, context.Canceled))
	// Output:
	// app-1 leads at 10.0.0.7:8080
	// true
}

// Operators see which client holds a lock, and can end the lease by its token.
func ExampleClient_Break() {
	ctx := context.Background()
	store := memory.NewStore()
	app, operator := client(store, "app-1"), client(store, "operator")
	defer app.Close(ctx)
	defer operator.Close(ctx)
	lock, _ := app.Lock("stuck", nil)
	if _, err := lock.Acquire(ctx); err != nil {
		panic(err)
	}
	for holder, err := range operator.List(ctx, "") {
		if err != nil {
			panic(err)
		}
		fmt.Println(holder.Name, "is held by", holder.Label)
		fmt.Println(operator.Break(ctx, holder.Name, holder.Token))
	}
	holder, _ := operator.Inspect(ctx, "stuck")
	fmt.Println("held:", holder.Held())
	// Output:
	// stuck is held by app-1
	// <nil>
	// held: false
}
