// Command scheduler runs a job at every tick, once over all instances that are
// up, whatever their version: what a blue-green deployment needs while both
// colours run.
//
// Two locks do it. That of the tick is kept for its whole TTL, so nobody runs
// the tick again, not even when its runner is killed in mid-job. That of the job
// keeps two runs from overlapping: a job that outlasts the interval is kept by
// renewal, and the ticks meanwhile are skipped. When the runner dies its plugin
// frees the job at once, and the next tick runs elsewhere.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/examples/internal/app"
)

// scheduler is one instance.
type scheduler struct {
	app.Instance
	job     string
	version string
	every   time.Duration
	ttl     time.Duration
	takes   time.Duration
}

func main() {
	var flags app.Flags
	flags.Add(flag.CommandLine)
	job := flag.String("job", "refresh", "name of the job")
	version := flag.String("version", "blue", "which deployment this is")
	every := flag.Duration("every", time.Second, "interval of the ticks, which start at its multiples")
	ttl := flag.Duration("ttl", 10*time.Second, "TTL of the locks; at least twice the interval")
	takes := flag.Duration("takes", 300*time.Millisecond, "how long the job takes")
	flag.Parse()
	flags.Main(func(ctx context.Context, i app.Instance) error {
		s := scheduler{Instance: i, job: *job, version: *version, every: *every, ttl: *ttl, takes: *takes}
		return s.run(ctx)
	})
}

// run tries each tick, in order, until ctx ends.
func (s *scheduler) run(ctx context.Context) error {
	if s.every <= 0 || s.ttl < 2*s.every {
		return fmt.Errorf("--ttl %v is not at least twice --every %v", s.ttl, s.every)
	}
	for at := time.Now().Truncate(s.every).Add(s.every); ; at = at.Add(s.every) {
		select {
		case <-time.After(time.Until(at)):
		case <-ctx.Done():
			return nil
		}
		if err := s.tick(ctx, at); err != nil {
			return err
		}
	}
}

// tick runs the job for one tick, or says why not. Its error ends the program:
// trying again cannot help.
func (s *scheduler) tick(ctx context.Context, at time.Time) error {
	if late := time.Since(at); late > s.ttl/2 {
		// The tick's lock may have expired already: this could be a second run.
		s.say(at, "skipped: %v late", late.Round(time.Millisecond))
		return nil
	}
	once, err := s.Client.Lock(fmt.Sprintf("%s@%s", s.job, at.UTC().Format(time.RFC3339Nano)), &core.LockOptions{TTL: s.ttl, AtLeast: s.ttl})
	if err != nil {
		return err
	}
	alone, err := s.Client.Lock(s.job, &core.LockOptions{TTL: s.ttl})
	if err != nil {
		return err
	}
	verb := "skipped"
	err = once.TryDo(ctx, func(ctx context.Context, _ *core.Lease) error {
		// The runner of the tick before may be dying just now.
		wait, cancel := context.WithTimeout(ctx, s.every)
		defer cancel()
		lease, err := alone.Acquire(wait)
		if err != nil {
			return fmt.Errorf("the run before is not over: %w", err)
		}
		working, stop := lease.Context(ctx)
		defer stop()
		verb = "ended"
		return errors.Join(s.work(working, at, lease.Token()), lease.Release(ctx))
	})
	switch {
	case err == nil, errors.Is(err, core.ErrHeld): // another instance has it
		return nil
	case errors.Is(err, core.ErrInvalid):
		return err
	default:
		s.say(at, "%s: %s", verb, strings.ReplaceAll(err.Error(), "\n", "; "))
		return nil
	}
}

// work is the job. It ends early when the lock is lost or the program is to end.
func (s *scheduler) work(ctx context.Context, at time.Time, token uint64) error {
	s.say(at, "start token %d", token)
	select {
	case <-time.After(s.takes):
		s.say(at, "done token %d", token)
		return nil
	case <-ctx.Done():
		s.say(at, "stopped: %v", context.Cause(ctx))
		return nil
	}
}

func (s *scheduler) say(at time.Time, format string, args ...any) {
	fmt.Printf("%s %s %s %s\n", at.UTC().Format("2006-01-02T15:04:05.000Z"), s.version, s.Name, fmt.Sprintf(format, args...))
}
