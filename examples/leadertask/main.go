// Command leadertask elects one leader among its instances. The leader does a piece of work at
// every tick. If only the leader's process is killed, its plugin resigns, and another instance
// leads at once. If the whole machine is gone, another instance leads after the TTL.
package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/examples/internal/app"
)

func main() {
	var flags app.Flags
	flags.Add(flag.CommandLine)
	election := flag.String("election", "leadertask", "name of the election")
	tick := flag.Duration("tick", time.Second, "how often the leader works")
	ttl := flag.Duration("ttl", 1200*time.Millisecond, "TTL of the term; raised to what the backend can do")
	flag.Parse()
	flags.Main(func(ctx context.Context, i app.Instance) error {
		return run(ctx, i, *election, *tick, *ttl)
	})
}

func run(ctx context.Context, i app.Instance, election string, tick, ttl time.Duration) error {
	ttl, err := fit(ctx, i, ttl)
	if err != nil {
		return err
	}
	e, err := i.Client.Elector(election, &core.ElectorOptions{TTL: ttl, Value: []byte(i.Name)})
	if err != nil {
		return err
	}
	say(i, "candidate, TTL %v", ttl)
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if i.Recorder != nil { // if --metrics is given
		watching.Go(func() { i.Follow(ctx, e) })
	}
	if i.Recorder != nil && i.Number == 1 { // one observer is enough for a process
		watching.Go(func() { i.Recorder.Watch(ctx, e) })
	}
	return e.Run(ctx, func(term *core.Term) {
		say(i, "leader of term %d", term.Token())
		lead(i, term, tick)
		say(i, "ends term %d: %s", term.Token(), core.CauseName(term.Err()))
	})
}

// fit returns the shortest supported TTL that is not below the parameter ttl. First it waits for a
// reply of the store, because the client does not know the backend's limits before that reply.
func fit(ctx context.Context, i app.Instance, ttl time.Duration) (time.Duration, error) {
	for i.Client.Check(ctx) != nil {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(time.Second):
			say(i, "waits for the store")
		}
	}
	p := i.Client.Properties()
	ttl = max(ttl, p.TTLMin)
	if part := ttl % p.TTLStep; part > 0 {
		ttl += p.TTLStep - part
	}
	return ttl, nil
}

func lead(i app.Instance, term *core.Term, tick time.Duration) {
	work := time.NewTicker(tick)
	defer work.Stop()
	for n := 1; term.Valid(); n++ {
		say(i, "works, token %d, piece %d", term.Token(), n)
		select {
		case <-work.C:
		case <-term.Context().Done():
			return
		}
	}
}

func say(i app.Instance, format string, args ...any) {
	fmt.Printf("%s %s %s\n", time.Now().UTC().Format("15:04:05.000000"), i.Name, fmt.Sprintf(format, args...))
}
