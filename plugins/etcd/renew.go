package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/etcd/internal/keepalive"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// Renew sends a keepalive and, at the same time, a read of the lock's key, because a keepalive
// alone would succeed even if Break has deleted the key. If the lock was granted in the queue, was
// acquired by an earlier process, or gets another TTL, Renew instead sends one Txn, which moves the
// lock to a lease with r.TTL.
func (b *Backend) Renew(ctx context.Context, r driver.Request) error {
	return b.Batch(ctx, []driver.Op{{Kind: driver.OpRenew, Request: r}})[0].Err
}

type renewal struct {
	r     driver.Request
	entry *entry
	err   *error

	// The lock is on this lease after the renewal. A move of the lock also sets step and keepalive.
	lease     *lease
	step      *txn.Step
	keepalive *keepalive.Keepalive
}

func (b *Backend) renew(ctx context.Context, all []*renewal, now time.Time) {
	var staying, moving []*renewal
	var group sync.WaitGroup
	slots := make(chan struct{}, maxAdoptions)
	for _, re := range all {
		if re.entry = b.table.find(re.r.Name, re.r.Owner, re.r.Token); re.entry != nil {
			continue
		}
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			re.entry, *re.err = b.adopt(ctx, re.r)
		})
	}
	group.Wait()
	for _, re := range all {
		if *re.err != nil {
			continue
		}
		b.table.mu.Lock()
		e := *re.entry
		live := !e.ending && now.Before(e.deadline)
		if live {
			b.table.pin(re.entry, now)
		}
		b.table.mu.Unlock()
		switch {
		case !live:
			*re.err = b.notHeld(ctx, re.r)
		case !e.unsure && e.lease.purpose == purpose{ttl: re.r.TTL} && !e.lease.retired.Load():
			staying = append(staying, re)
		default:
			moving = append(moving, re)
		}
	}
	b.stay(ctx, append(staying, b.move(ctx, moving, now)...), now)
}

// stay renews locks that stay on their leases, by one keepalive for each lease.
func (b *Backend) stay(ctx context.Context, all []*renewal, now time.Time) {
	if len(all) == 0 {
		return
	}
	keepalives := map[*lease]*keepalive.Keepalive{}
	entries := make([]*entry, len(all))
	for i, re := range all {
		entries[i] = re.entry
		if re.lease = b.table.snapshot(re.entry).lease; keepalives[re.lease] == nil {
			keepalives[re.lease] = b.leases.keepalive(re.lease, now)
		}
	}
	gone, err := b.table.verify(ctx, entries)
	for _, re := range all {
		unanswered := b.leases.await(ctx, re.lease, keepalives[re.lease])
		switch {
		case err == nil && (gone[re.entry] || errors.Is(unanswered, keepalive.ErrGone)):
			b.table.drop(re.entry)
			*re.err = b.notHeld(ctx, re.r)
		case err != nil || unanswered != nil:
			*re.err = b.cluster.Wrap(cmp.Or(err, unanswered))
		default:
			b.table.until(re.entry, now.Add(re.r.TTL))
		}
		b.table.unpin(re.entry)
	}
}

// move renews locks by moving their keys to leases of this process. If the store has no space, it
// refuses the moves. Then move returns the locks whose present leases have long enough TTLs, and
// the caller renews these locks by keepalives, which write nothing. Such a keepalive also extends
// all other keys on the lease, even keys that an earlier process has put.
func (b *Backend) move(ctx context.Context, all []*renewal, now time.Time) (staying []*renewal) {
	var steps []*txn.Step
	var err error
	for _, re := range all {
		if !cluster.OutOfSpace(err) { // else the store would refuse each lease
			re.lease, err = b.leases.get(ctx, purpose{ttl: re.r.TTL})
		}
		if *re.err = err; err != nil {
			continue
		}
		re.step, re.keepalive = b.moving(re.entry, re.lease), b.leases.keepalive(re.lease, now)
		steps = append(steps, re.step)
	}
	b.txns.Submit(steps...)
	for _, re := range all {
		if re.step != nil {
			*re.err = b.awaitMove(ctx, re)
		}
		e := b.table.snapshot(re.entry)
		switch err := *re.err; {
		case err == nil:
			b.table.until(re.entry, now.Add(re.r.TTL))
		case cluster.OutOfSpace(err) && b.cluster.Harmless(err) && !e.unsure && e.lease.ttl >= re.r.TTL:
			*re.err = nil
			staying = append(staying, re)
			continue
		}
		b.table.unpin(re.entry)
	}
	return staying
}

// moving returns the operation that moves the lock e to the lease l. The operation fails unless e's
// key is on the lease that the table has recorded for e. So a move that arrives too late fails.
func (b *Backend) moving(e *entry, l *lease) *txn.Step {
	b.table.mu.Lock()
	from := b.table.pin(e, time.Now()).lease // a delete that names this lease would do nothing after the move
	b.table.mu.Unlock()
	s := b.table.change(e, txn.Change(&pb.PutRequest{Key: []byte(e.key), IgnoreValue: true, Lease: l.id}), txn.OnLease(e.key, from.id))
	s.Repeatable = true
	s.Done = func() bool {
		v := lockStateIn(s.Found)
		return e.is(v.first, v.Generation) && v.first.Lease == l.id
	}
	s.OnAnswer = func() {
		if s.OK {
			b.table.moved(e, l)
		} else {
			b.table.notMoved(e, l, s.Err != nil && !b.cluster.Harmless(s.Err))
		}
		b.table.unpin(e)
	}
	return s
}

// errElsewhere means that a lock was not moved because its key was not on the lease that the table
// had recorded. The table has the right lease for the next try.
var errElsewhere = fmt.Errorf("etcd: %w: the lock was moved to another lease meanwhile", driver.ErrUnavailable)

func (b *Backend) awaitMove(ctx context.Context, re *renewal) error {
	if err := b.txns.Wait(ctx, re.step); err != nil {
		return err
	}
	switch s, v := re.step, lockStateIn(re.step.Found); {
	case cluster.Is(s.Err, rpctypes.ErrLeaseNotFound):
		re.lease.retired.Store(true)
		return b.cluster.Untouched(s.Err)
	case s.OK:
		return b.cluster.Wrap(b.leases.await(ctx, re.lease, re.keepalive))
	case s.Err == nil && re.entry.is(v.first, v.Generation):
		b.table.moved(re.entry, &lease{id: v.first.Lease, purpose: purpose{use: foreign}})
		return errElsewhere
	case s.Err == nil:
		b.table.drop(re.entry)
	}
	return b.finish(ctx, re.step)
}

// maxAdoptions is the largest number of locks that are read at the same time after a restart.
const maxAdoptions = 16

// adopt adds to the table a lock that this process does not know, usually because an earlier
// process of this host acquired it. The next renewal moves the lock to a lease of this process,
// because other keys may be on its present lease.
func (b *Backend) adopt(ctx context.Context, r driver.Request) (*entry, error) {
	v, err := b.readLock(ctx, r.Name)
	if err != nil {
		return nil, err
	}
	if v.first == nil || v.Generation.Token(v.first.CreateRevision) != r.Token || recordOf(v.first).owner != r.Owner {
		return nil, &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	left, err := b.leases.expiry(ctx, v.first.Lease)
	if err != nil {
		return nil, err
	}
	return b.table.adopt(&entry{
		name: r.Name, owner: r.Owner, label: recordOf(v.first).label, key: string(v.first.Key), rev: v.first.CreateRevision, generation: v.Generation,
		seenAt: v.Rev, deadline: left.at.Add(time.Second),
		lease: &lease{id: v.first.Lease, purpose: purpose{ttl: left.granted, use: foreign}, acked: left.at.Add(-left.granted)},
	}), nil
}
