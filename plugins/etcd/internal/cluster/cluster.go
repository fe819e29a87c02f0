package cluster

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Options say how to reach a cluster.
type Options struct {
	// Address lists the members, each with its scheme.
	Address []string
	config.Connect
	Source *config.Source
	Logger *slog.Logger
	// Prefix is the beginning of the keys that the user may read and write.
	Prefix string
	// Probe is a key that is read to find out whether the store answers.
	Probe string
}

// Cluster is the connection of a process to an etcd cluster. All its requests and streams go to one
// member (see decision etcd-7 for why clientv3's balancer is not used). The next requests and
// streams go to another member as soon as the member in use reports a failure, or does not answer a
// read that another member answers. Its methods may be called from any number of goroutines.
type Cluster struct {
	opts   Options
	health health

	identity   identity
	background *kit.Group

	mu   sync.Mutex
	all  []*member // the member in use, and then the others in the order in which to try them
	term uint64    // the highest term of a leader seen
}

// New returns a Cluster. It does not wait for a member to answer.
func New(o Options) *Cluster {
	c := &Cluster{opts: o, background: kit.NewGroup()}
	c.health.wake = make(chan struct{}, 1)
	for _, e := range o.Address {
		c.all = append(c.all, &member{endpoint: e, dial: make(chan struct{}, 1)})
	}
	rand.Shuffle(len(c.all), func(i, j int) { c.all[i], c.all[j] = c.all[j], c.all[i] })
	c.identity.Addr, c.identity.Log, c.identity.looking = strings.Join(o.Address, ","), o.Logger, make(chan struct{}, 1)
	c.identity.looked.Store(&time.Time{})
	c.Go(c.watchHealth)
	return c
}

// Go runs f in a goroutine that Close waits for. After Close it does nothing and returns false.
func (c *Cluster) Go(f func()) bool { return c.background.Go(f) }

// Apart runs f like Go, but after Close it calls f directly. In that case f must not wait.
func (c *Cluster) Apart(f func()) {
	if !c.Go(f) {
		f()
	}
}

// Context returns a context that ends when Close is called.
func (c *Cluster) Context() context.Context { return c.background }

// Close cancels all requests, waits for the goroutines that method Go has started, calls the
// function last, and closes all connections. If ctx ends first, Close returns ctx.Err().
func (c *Cluster) Close(ctx context.Context, last func()) error {
	return c.background.Close(ctx, func() {
		last()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.all {
			if conn := m.conn.Load(); conn != nil {
				conn.close(nil)
			}
		}
	})
}

// RequestTimeout returns the time limit of one request.
func (c *Cluster) RequestTimeout() time.Duration { return c.opts.RequestTimeout }
