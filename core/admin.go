package core

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// maxLook bounds single questions whose ctx has no end of its own, so that a
// hung backend blocks nobody for ever.
const maxLook = 5 * time.Second

// question is a public operation that asks the backend once.
func (c *Client) question(ctx context.Context, op, name string, ask func(context.Context) error) error {
	if err := c.begin(op, clip(name)); err != nil {
		return err
	}
	defer c.end()
	ctx, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	return c.wrap(op, clip(name), ask(ctx))
}

// Inspect returns who holds the lock of that name: the zero Holder when nobody
// does. It waits 5 s at most, as do Check, Break, Leader and Proclaim.
func (c *Client) Inspect(ctx context.Context, name string) (Holder, error) {
	return c.inspect(ctx, "inspect", name)
}

func (c *Client) inspect(ctx context.Context, op, name string) (h Holder, err error) {
	err = c.question(ctx, op, name, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		found, err := c.b.Inspect(ctx, name)
		if err == nil {
			h = c.here(name, found)
		}
		return err
	})
	return h, err
}

// here gives a holder the token that its lease in this host has by now.
func (c *Client) here(name string, h Holder) Holder {
	l := c.queues.holder(name)
	if l != nil && l.owner == h.Owner && GrantNumber(l.token) == GrantNumber(h.Token) {
		h.Token = l.token
	}
	return h
}

// List yields every held lock whose name starts with prefix, in no particular
// order: all locks for "". The loop must not call Close. An error ends it. It wraps ErrUnsupported where the
// backend cannot list.
func (c *Client) List(ctx context.Context, prefix string) iter.Seq2[Holder, error] {
	return func(yield func(Holder, error) bool) {
		if err := c.begin("list", prefix); err != nil {
			yield(Holder{}, err)
			return
		}
		defer c.end()
		err := c.needAdmin()
		more := true
		if err == nil {
			err = c.b.List(ctx, prefix, func(h Holder) bool {
				more = more && yield(c.here(h.Name, h), nil)
				return more
			})
		}
		if err != nil && more {
			yield(Holder{}, c.wrap("list", prefix, err))
		}
	}
}

// Break ends the lease of name if it is still one of the grant of token,
// whoever holds it, and to whomever it was handed over in its host meanwhile.
// Inspect returns the token. The error is a [*NotHeldError] when that lease is
// over, and wraps ErrUnsupported where the backend cannot break leases.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	return c.question(ctx, "break", name, func(ctx context.Context) error {
		if err := checkName(name); err != nil {
			return err
		}
		if err := c.needAdmin(); err != nil {
			return err
		}
		if err := c.b.Break(ctx, name, token); err != nil {
			return err
		}
		c.sched.loseGrant(name, token, func(*Lease) error { return ErrRevoked })
		return nil
	})
}

func (c *Client) needAdmin() error {
	if c.b.admin != nil {
		return nil
	}
	return fmt.Errorf("%w: %s does not declare the capability %q", ErrUnsupported, c.name, driver.CapAdmin)
}

// notHeld records what an answer that wraps ErrNotHeld says about l, or about
// the lease that it was handed on to. A store that has lost its data may mint a
// token again, so the owner says which grant it is.
func (c *Client) notHeld(l *Lease, err error) {
	if !errors.Is(err, ErrNotHeld) {
		return
	}
	c.sched.loseGrant(l.lock.name, l.token, func(now *Lease) error {
		if now.owner != l.owner {
			return nil
		}
		return c.sched.verdict(now, err, c.clock.now())
	})
}
