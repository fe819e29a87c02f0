package drivertest

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

type retoken struct {
	mu         sync.Mutex
	next       func() uint64
	fake, real map[string]uint64 // by owner
}

func newRetoken(next func() uint64) *retoken {
	return &retoken{next: next, fake: map[string]uint64{}, real: map[string]uint64{}}
}

func (m *retoken) put(owner string, real uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	fake := m.next()
	m.fake[owner], m.real[owner] = fake, real
	return fake
}

func (m *retoken) back(r driver.Request) driver.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fake, known := m.fake[r.Owner]; known && fake == r.Token {
		r.Token = m.real[r.Owner]
	} else if r.Token != 0 {
		r.Token = 1 // a token that matches no grant
	}
	return r
}

func (m *retoken) show(h driver.Holder) driver.Holder {
	m.mu.Lock()
	defer m.mu.Unlock()
	if fake, known := m.fake[h.Owner]; known {
		h.Token = fake
	}
	return h
}

func (m *retoken) plant(c *calls) {
	inner := *c
	hintsOnly(c)
	c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
		token, err := inner.acquire(ctx, r)
		if err != nil {
			return 0, err
		}
		return m.put(r.Owner, token), nil
	}
	c.renew = func(ctx context.Context, r driver.Request) error { return inner.renew(ctx, m.back(r)) }
	c.release = func(ctx context.Context, r driver.Request) error { return inner.release(ctx, m.back(r)) }
	c.proclaim = func(ctx context.Context, r driver.Request) error { return inner.proclaim(ctx, m.back(r)) }
	c.inspect = func(ctx context.Context, name string) (driver.Holder, error) {
		h, err := inner.inspect(ctx, name)
		return m.show(h), err
	}
	c.observe = func(ctx context.Context, name string, emit func(driver.Holder)) error {
		return inner.observe(ctx, name, func(h driver.Holder) {
			for i := 0; h.Held() && m.show(h).Token == h.Token && i < 100; i++ { // the fake token is not known yet
				time.Sleep(time.Millisecond)
			}
			emit(m.show(h))
		})
	}
	c.breaks = func(ctx context.Context, name string, token uint64) error {
		h, err := inner.inspect(ctx, name)
		if err == nil && m.show(h).Token == token {
			token = h.Token
		}
		return inner.breaks(ctx, name, token)
	}
}

func tokensBy(next func() func() uint64) func(*fixture) func(*calls) {
	return func(*fixture) func(*calls) { return newRetoken(next()).plant }
}

func tokenBugs() []bug {
	return []bug{
		{
			name:  "token repeats",
			plant: tokensBy(func() func() uint64 { return func() uint64 { return 7 } }),
			caught: []string{
				"L6 tokens rise over release", "L6 tokens rise over expiry", "L6 tokens rise over withdrawal", "L6 tokens rise over break",
				"L7 the lock of a killed host is free at once",
				"E4 one start and one stop per term",
			},
		},
		{
			name: "token goes back",
			plant: tokensBy(func() func() uint64 {
				n := uint64(1 << 40)
				return func() uint64 { n--; return n }
			}),
			caught: []string{
				"L6 tokens rise over release", "L6 tokens rise over expiry", "L6 tokens rise over withdrawal", "L6 tokens rise over break",
				"L6 a token is minted with its grant", "L6 tokens rise over a crash of the store that keeps its data",
				"K4 no two holders under contention", "E3 tokens never go back in observe",
			},
		},
		{
			name:   "token is zero",
			plant:  tokensBy(func() func() uint64 { return func() uint64 { return 0 } }),
			caught: []string{"L6 tokens are what the properties claim"},
		},
		{
			name:   "token is too large",
			plant:  tokensBy(func() func() uint64 { n := uint64(1 << 53); return func() uint64 { n++; return n } }),
			caught: []string{"L6 tokens are what the properties claim"},
		},
		{
			name:   "token is minted before the grant",
			plant:  mintedApart,
			caught: []string{"L6 a token is minted with its grant"},
		},
		{
			name:   "tokens begin again after a restart",
			plant:  beginsAgain(true),
			caught: []string{"L6 tokens rise over a crash of the store that keeps its data"},
		},
		{
			name: "a crash brings a released lock back",
			plant: func(w *fixture) func(*calls) {
				var last driver.Request
				w.start = func(bool) { _, _ = w.store.Open().TryAcquire(context.Background(), last) }
				return func(c *calls) {
					inner := c.release
					c.release = func(ctx context.Context, r driver.Request) error { last = r; return inner(ctx, r) }
				}
			},
			caught: []string{"L7 a release outlasts a crash of the store"},
		},
		{
			name:   "tokens begin again with new data",
			plant:  beginsAgain(false),
			caught: []string{"L6 tokens rise over a restart of the store without its data"},
		},
	}
}

// beginsAgain is a bug: tokens begin at 1 again after Start is called with this value of keepData.
func beginsAgain(keepData bool) func(*fixture) func(*calls) {
	return func(w *fixture) func(*calls) {
		n := uint64(0)
		w.start = func(kept bool) {
			if kept == keepData {
				n = 0
			}
		}
		return newRetoken(func() uint64 { n++; return n }).plant
	}
}

// mintedApart is a bug: TryAcquire takes a token and then acquires the lock, in two steps.
func mintedApart(*fixture) func(*calls) {
	var (
		mu     sync.Mutex
		minted uint64
		own    = map[string]uint64{}
	)
	return func(c *calls) {
		m := newRetoken(nil)
		inner := c.acquire
		var current uint64
		m.next = func() uint64 { return current }
		m.plant(c)
		c.acquire = func(ctx context.Context, r driver.Request) (uint64, error) {
			mu.Lock()
			minted++
			own[r.Owner] = minted
			pause := time.Duration(minted%5) * time.Millisecond
			mu.Unlock()
			time.Sleep(pause)
			token, err := inner(ctx, r)
			if err != nil {
				return 0, err
			}
			mu.Lock()
			defer mu.Unlock()
			current = own[r.Owner]
			return m.put(r.Owner, token), nil
		}
	}
}
