package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/tick"
	"github.com/lockbench/lockbench/examples/integrations/certmagiclock"
	"github.com/lockbench/lockbench/examples/integrations/cronlock"
	"github.com/lockbench/lockbench/examples/integrations/gocronlock"
	"github.com/lockbench/lockbench/examples/integrations/synclock"
)

const (
	// ttl is shorter than jobTime, so a lock that is not renewed would be granted twice.
	ttl      = time.Second
	jobTime  = 2500 * time.Millisecond
	interval = time.Second
)

// worker is a process of an integration test. It writes a line into its journal file when it is
// ready, and when a job starts or ends. Each line has the event, the process id, and the token. The
// token is 0 if the job does not get one.
type worker struct {
	client  *core.Client
	journal *os.File
}

// loops has a function for each integration. A worker runs this function until ctx ends.
var loops = map[string]func(ctx context.Context, w *worker) error{
	"gocron-locker":  withLocker,
	"gocron-elector": withElector,
	"cron":           withCron,
	"certmagic":      withCertmagic,
	"sync":           withMutex,
}

// work is the main function of a worker. Its arguments are the integration,
// the plugin's directory, the server's address and the journal.
func work(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	backend, err := plugin.Open(ctx, "redis", &plugin.Options{Config: map[string]string{"address": args[2]}, Dirs: []string{args[1]}})
	if err != nil {
		return err
	}
	w := &worker{client: core.New(backend, nil)}
	defer w.client.Close(context.Background())
	if w.journal, err = os.OpenFile(args[3], os.O_WRONLY|os.O_APPEND, 0); err != nil {
		return err
	}
	fmt.Fprintf(w.journal, "ready %d 0\n", os.Getpid())
	return loops[args[0]](ctx, w)
}

func (w *worker) job(ctx context.Context, token uint64) {
	fmt.Fprintf(w.journal, "start %d %d\n", os.Getpid(), token)
	select {
	case <-time.After(jobTime):
		fmt.Fprintf(w.journal, "end %d %d\n", os.Getpid(), token)
	case <-ctx.Done():
		fmt.Fprintf(w.journal, "end %d %d\n", os.Getpid(), token)
	}
}

func (w *worker) options() *core.LockOptions { return &core.LockOptions{TTL: ttl} }

func (w *worker) ticks() *tick.Options { return &tick.Options{Lock: *w.options()} }

func withLocker(ctx context.Context, w *worker) error {
	locker := gocronlock.NewLocker(w.client, "cron/", tick.Every(interval), w.ticks())
	return schedule(ctx, gocron.WithDistributedLocker(locker), func(ctx context.Context) {
		ctx, token, cancel, err := locker.Under(ctx, "job")
		if err == nil {
			defer cancel()
			w.job(ctx, token)
		}
	})
}

func withElector(ctx context.Context, w *worker) error {
	election, err := w.client.Elector("cron", &core.ElectorOptions{TTL: ttl})
	if err != nil {
		return err
	}
	campaign, resign := context.WithCancel(context.WithoutCancel(ctx))
	elector := gocronlock.NewElector(campaign, election)
	err = schedule(ctx, gocron.WithDistributedElector(elector), func(ctx context.Context) {
		ctx, token, cancel, err := elector.Under(ctx)
		if err == nil {
			defer cancel()
			w.job(ctx, token)
		}
	})
	resign() // now that the jobs have ended
	if waited := elector.Wait(); err == nil {
		err = waited
	}
	return err
}

func schedule(ctx context.Context, distributed gocron.SchedulerOption, task func(context.Context)) error {
	s, err := gocron.NewScheduler(distributed)
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.DurationJob(interval), gocron.NewTask(task), gocron.WithName("job"),
		gocron.WithSingletonMode(gocron.LimitModeReschedule))
	if err != nil {
		return err
	}
	s.Start()
	<-ctx.Done()
	return s.Shutdown()
}

func withCron(ctx context.Context, w *worker) error {
	each := tick.Every(interval)
	ticks, err := tick.New(w.client, "cron/job", each, w.ticks())
	if err != nil {
		return err
	}
	c := cron.New()
	job := cronlock.Job(func(ctx context.Context, t tick.Tick) error {
		w.job(ctx, t.Lease.Token())
		return nil
	})
	once := cronlock.Once(ctx, ticks, func(err error) {
		if !errors.Is(err, tick.ErrLate) {
			fmt.Fprintln(os.Stderr, err)
		}
	})
	c.Schedule(each, cron.NewChain(once).Then(job))
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

func withCertmagic(ctx context.Context, w *worker) error {
	dir, err := os.MkdirTemp("", "certificates-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	storage := certmagiclock.New(&certmagic.FileStorage{Path: dir}, w.client, "certificates/", w.options())
	for ctx.Err() == nil {
		if err := storage.Lock(ctx, "example.org"); err != nil {
			break // the ctx has ended
		}
		w.job(ctx, 0)
		if err := storage.RenewLockLease(ctx, "example.org", time.Minute); err != nil {
			return err
		}
		if err := storage.Unlock(ctx, "example.org"); err != nil {
			return err
		}
	}
	return nil
}

func withMutex(ctx context.Context, w *worker) error {
	lock, err := w.client.Lock("mutex", w.options())
	if err != nil {
		return err
	}
	m := synclock.New(lock, func(cause error) {
		fmt.Fprintln(os.Stderr, "the lock was lost:", cause)
		os.Exit(1)
	})
	for ctx.Err() == nil {
		m.Lock()
		w.job(ctx, 0)
		m.Unlock()
	}
	return nil
}
