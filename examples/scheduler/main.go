// Command scheduler runs a job once at every tick, on one of its running instances. The instances
// may have different versions, as in a blue-green deployment while both versions run.
package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/tick"
	"github.com/lockbench/lockbench/examples/internal/app"
)

type scheduler struct {
	app.Instance
	version string
	takes   time.Duration
}

func main() {
	var flags app.Flags
	flags.Add(flag.CommandLine)
	name := flag.String("job", "refresh", "name of the job")
	version := flag.String("version", "blue", "which deployment this is")
	every := flag.Duration("every", time.Second, "interval of the ticks, which start at its multiples")
	ttl := flag.Duration("ttl", 10*time.Second, "TTL of the job's lock")
	takes := flag.Duration("takes", 300*time.Millisecond, "how long the job takes")
	flag.Parse()
	flags.Main(func(ctx context.Context, i app.Instance) error {
		s := scheduler{Instance: i, version: *version, takes: *takes}
		job, err := tick.New(i.Client, *name, tick.Every(*every), &tick.Options{Lock: core.LockOptions{TTL: *ttl}, OnEvent: s.told})
		if err != nil {
			return err
		}
		s.say(time.Now(), "up")
		return job.Run(ctx, s.work)
	})
}

// work returns before the job is done if the lock is lost or the program must end.
func (s *scheduler) work(ctx context.Context, t tick.Tick) error {
	s.say(t.At, "start token %d", t.Lease.Token())
	select {
	case <-time.After(s.takes):
		s.say(t.At, "done token %d", t.Lease.Token())
	case <-ctx.Done():
		s.say(t.At, "stopped: %v", context.Cause(ctx))
	}
	return nil
}

// told prints an event of core/tick if a tick was or may have been missed, or if the job failed.
func (s *scheduler) told(ev tick.Event) {
	if ev.Err == nil || ev.Kind == tick.Elsewhere {
		return
	}
	s.say(ev.At, "%v, ticks %d: %s", ev.Kind, ev.Ticks, strings.ReplaceAll(ev.Err.Error(), "\n", "; "))
}

func (s *scheduler) say(at time.Time, format string, args ...any) {
	fmt.Printf("%s %s %s %s\n", at.UTC().Format("2006-01-02T15:04:05.000Z"), s.version, s.Name, fmt.Sprintf(format, args...))
}
