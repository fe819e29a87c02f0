package cas_test

import (
	"context"

	"fmt"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/cas"
)

// The zero value of data is an empty store in memory.
type data struct {
	mu       sync.Mutex
	entries  map[string]cas.Entry
	revision uint64
	watches  map[*watch]bool
	silent   bool          // entries do not have the time at which they were written
	timeless bool          // keys do not expire
	step     time.Duration // the clock shows the time in such steps; 0 means the exact time
	ends     map[string]time.Time
}

type watch struct {
	key     string
	changed func()
}

// client holds no mutex while it calls one of its hooks, the fields before and after.
type client struct {
	*data
	before func(op, key string) error // if it returns an error, the request fails with it and is not executed
	after  func(op, key string) error // if it returns an error, the request is executed and fails with it
}

func (c *client) do(ctx context.Context, op, key string, f func() (cas.Entry, error)) (cas.Entry, error) {
	if err := ctx.Err(); err != nil {
		return cas.Entry{}, err
	}
	if c.before != nil {
		if err := c.before(op, key); err != nil {
			return cas.Entry{}, err
		}
	}
	c.mu.Lock()
	e, err := f()
	if op != "read" && err == nil {
		for w := range c.watches {
			if w.key == key {
				w.changed()
			}
		}
	}
	c.mu.Unlock()
	if c.after != nil && err == nil {
		err = c.after(op, key)
	}
	return e, err
}

func (c *client) Read(ctx context.Context, key string) (cas.Entry, error) {
	return c.do(ctx, "read", key, func() (cas.Entry, error) { return c.at(key), nil })
}

// The caller of at must hold the mutex of c.
func (c *client) at(key string) cas.Entry {
	now := time.Now()
	if end, ok := c.ends[key]; ok && !now.Before(end) {
		delete(c.entries, key)
		delete(c.ends, key)
	}
	e := c.entries[key]
	e.Now = now.Truncate(c.step)
	return e
}

func (c *client) Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (cas.Entry, error) {
	return c.do(ctx, "put", key, func() (cas.Entry, error) {
		e := c.at(key)
		if e.Revision != revision {
			return e, fmt.Errorf("fake: %w", cas.ErrConflict)
		}
		c.revision++
		e = cas.Entry{Value: value, Revision: c.revision, Written: e.Now}
		if c.silent {
			e.Written = time.Time{}
		}
		if c.entries == nil {
			c.entries, c.ends = map[string]cas.Entry{}, map[string]time.Time{}
		}
		c.entries[key] = e
		if !c.timeless {
			c.ends[key] = time.Now().Add(ttl)
		}
		return e, nil
	})
}

func (c *client) Delete(ctx context.Context, key string, revision uint64) error {
	_, err := c.do(ctx, "delete", key, func() (e cas.Entry, err error) {
		if c.at(key).Revision != revision {
			return e, cas.ErrConflict
		}
		delete(c.entries, key)
		delete(c.ends, key)
		return e, nil
	})
	return err
}

func (c *client) List(ctx context.Context, emit func(cas.Entry) bool) error {
	c.mu.Lock()
	var all []cas.Entry
	for key := range c.entries {
		all = append(all, c.at(key))
	}
	c.mu.Unlock()
	for _, e := range all {
		if len(e.Value) > 0 && !emit(e) {
			break
		}
	}
	return ctx.Err()
}

func (c *client) Check(ctx context.Context) (cas.About, error) {
	return cas.About{Server: "a map", Durability: "none"}, ctx.Err()
}

func (c *client) Close(context.Context) error { return nil }

type watched struct{ *client }

func (c watched) Watch(key string, changed func()) (func(), error) {
	w := &watch{key, changed}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches == nil {
		c.watches = map[*watch]bool{}
	}
	c.watches[w] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watches, w)
	}, nil
}

var claims = driver.Properties{
	Name: "fake", Fencing: driver.FencingDurable,
	TTLMin: time.Millisecond, TTLStep: time.Millisecond, TTLMax: 24 * time.Hour,
	Durability: "unknown",
}
