package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Check asks every node whether it would grant a lock; see driver.Backend. Each node tries all
// commands of an acquire, but changes no lock. A read would not be enough. A node with full memory,
// or a node that became a replica, answers reads but refuses writes. Check succeeds if a majority
// would grant the lock. But if any node refuses this client or has unsafe settings, Check returns
// an error that wraps driver.ErrDenied, because only an operator can help.
func (b *Backend) Check(ctx context.Context) error {
	if err := b.connected(ctx); err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	o := b.operation("check", driver.Request{Name: "~", Owner: b.id}, kindCheck, (*operation).verdict)
	o.now.key, o.now.quorum = b.keys.Nobody(), 0
	if err := b.do(ctx, o)[0].Err; errors.Is(err, driver.ErrClosed) {
		return err
	}
	err := o.err
	if ctx.Err() == nil {
		if refusals := b.refusals(ctx, o.now.result()); len(refusals) > 0 {
			err = fmt.Errorf("%w: %s", driver.ErrDenied, strings.Join(refusals, "; "))
		}
	}
	if err != nil {
		return fmt.Errorf("redlock: check: %w", err)
	}
	return nil
}

// refusals describes the nodes with unsafe settings, and the nodes that refuse this client in a
// vote or on the connection for wake-ups.
func (b *Backend) refusals(ctx context.Context, votes []vote) []string {
	causes := make([]string, len(b.nodes))
	var work sync.WaitGroup
	for i, n := range b.nodes {
		if _, cause := n.status(); errors.Is(errors.Join(cause, n.store.Refusal()), driver.ErrDenied) {
			causes[i] = n.describe()
			continue
		}
		err := votes[i].err
		work.Go(func() {
			if votes[i].yes() {
				// Only ErrDenied is a refusal. Any other error of the wake-up connection only delays grants.
				_, err = n.store.Wakeups.Ready(ctx)
			}
			if errors.Is(err, driver.ErrDenied) {
				causes[i] = fmt.Sprintf("%s: %v", n.addr, err)
			}
		})
	}
	work.Wait()
	return slices.DeleteFunc(causes, func(s string) bool { return s == "" })
}

// connected waits, for a limited time, until the first try to connect to each node has ended.
func (b *Backend) connected(ctx context.Context) error {
	for end := time.Now().Add(b.opts.DialTimeout + b.opts.NodeTimeout); time.Now().Before(end); {
		moved := b.changed.Next()
		if !slices.ContainsFunc(b.nodes, (*node).connecting) {
			return nil
		}
		switch err := b.rest(ctx, moved, time.After(time.Until(end))); {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("%w: no reply yet: %w", driver.ErrUnavailable, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// Properties returns what the backend promises, and the versions and the durability of its servers,
// as the newest connections found them. If the servers differ, Properties lists all values.
func (b *Backend) Properties() driver.Properties {
	p := b.opts.properties()
	var durability, servers []string
	for _, n := range b.nodes {
		n.mu.Lock()
		s := n.server
		n.mu.Unlock()
		if s.RunID != "" {
			durability, servers = append(durability, s.Durability), append(servers, s.Version)
		}
	}
	if len(servers) > 0 {
		p.Durability = distinct(durability)
		p.Server = distinct(servers)
	}
	return p
}

func distinct(all []string) string {
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// Watch reports when a majority of nodes no longer votes, and when a majority votes again; see
// driver.Watcher.
func (b *Backend) Watch(ctx context.Context, emit func(driver.Notice)) error {
	up := true
	for {
		moved := b.changed.Next()
		voting := 0
		for _, n := range b.nodes {
			if n.votes() {
				voting++
			}
		}
		switch {
		case voting >= b.quorum && !up:
			up = true
			emit(driver.Notice{Kind: driver.NoticeUp})
		case voting < b.quorum && up && !slices.ContainsFunc(b.nodes, (*node).connecting):
			up = false
			emit(driver.Notice{Kind: driver.NoticeDown, Err: b.unavailable(make([]vote, len(b.nodes)))})
		}
		if err := b.rest(ctx, moved, nil); err != nil {
			return err
		}
	}
}
