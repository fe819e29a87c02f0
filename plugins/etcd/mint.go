package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// epoch is the life of a namespace from its first use to the loss of its data.
// A token is the create revision of the lease's key, above the epoch's base:
// revisions rise through crashes and changes of leader, but a cluster that was
// set up anew begins again at 1, and a resource that remembers the highest
// token would refuse its holders or, worse, let an old one in.
//
// An epoch is known by its base, which is the value of its key. The key's
// revision would not do: in two clusters that were set up one after the other
// the first key of each has the same.
type epoch struct {
	base uint64 // in microseconds since 1970 when the epoch began
}

// value is what the epoch's key has.
func (e *epoch) value() []byte { return strconv.AppendUint(nil, e.base, 10) }

func (e *epoch) token(rev int64) uint64 { return e.base + uint64(rev) }

// same reports whether revisions of both can be compared.
func (e *epoch) same(other *epoch) bool { return e.base == other.base }

// revision is token's inverse; for a token of another epoch it is one that no
// key has.
func (e *epoch) revision(token uint64) int64 {
	if token <= e.base || token-e.base > 1<<62 {
		return -1
	}
	return int64(token - e.base)
}

// mint knows the present epoch. Every Txn compares it, so that a process which
// outlives the data of its store cannot mix two epochs.
//
// Note: etcd has no clock to ask, so the first user of an empty namespace takes
// its own to set the base. It orders epochs, which are years apart, and decides
// nothing else.
type mint struct {
	b       *Backend
	present atomic.Pointer[epoch]
	highest atomic.Int64 // revision seen
}

// errEpoch: the store has lost its data since the request was prepared; nothing
// of it happened.
var errEpoch = errors.New("etcd: the store has lost its data")

func (m *mint) init(b *Backend) { m.b = b }

// load returns the present epoch. Its error changed no lock.
func (m *mint) load(ctx context.Context) (*epoch, error) {
	if e := m.present.Load(); e != nil {
		return e, nil
	}
	return m.fetch(ctx, 0)
}

// fetch reads the epoch, or begins one above least. It writes only what is not
// there: a store without space refuses a Txn for what it might write.
func (m *mint) fetch(ctx context.Context, least uint64) (*epoch, error) {
	key := m.b.space.epoch
	look := []*pb.RequestOp{read(&pb.RangeRequest{Key: []byte(key)})}
	e := &epoch{base: max(least, uint64(max(0, time.Now().UnixMicro())))}
	for _, req := range []*pb.TxnRequest{
		{Success: look},
		{Compare: []*pb.Compare{absent(key, nil)}, Success: []*pb.RequestOp{put(key, e.value(), 0)}, Failure: look},
	} {
		resp, err := m.b.send(ctx, true, req)
		if err != nil {
			return nil, m.b.untouched(err)
		}
		kvs := resp.Responses[0].GetResponseRange().GetKvs()
		if len(kvs) == 0 {
			continue
		}
		if e.base, err = strconv.ParseUint(string(kvs[0].Value), 10, 62); err != nil {
			return nil, fmt.Errorf("etcd: key %q: %w", key, err)
		}
		break
	}
	m.present.Store(e)
	return e, nil
}

// holds makes a Txn depend on e.
func (m *mint) holds(e *epoch) *pb.Compare { return worth(m.b.space.epoch, e.value()) }

// goesOn reports whether e was still there when ops, whose last one reads its key,
// were done.
func (m *mint) goesOn(e *epoch, ops []*pb.ResponseOp) bool {
	kvs := ops[len(ops)-1].GetResponseRange().GetKvs()
	return len(kvs) > 0 && bytes.Equal(kvs[0].Value, e.value())
}

// see notes a revision of the store.
func (m *mint) see(rev int64) {
	for old := m.highest.Load(); rev > old && !m.highest.CompareAndSwap(old, rev); old = m.highest.Load() {
	}
}

// over is called when e turned out to have ended: the next one is above it
// whatever this machine's clock says.
func (m *mint) over(ctx context.Context, e *epoch) error {
	if m.present.CompareAndSwap(e, nil) {
		m.b.opts.Logger.Warn("etcd: the store has lost its data: all leases of before are gone")
		// Or its epoch alone, by hand: then what is on them must end too.
		m.b.leases.retireAll()
	}
	_, err := m.fetch(ctx, e.token(m.highest.Swap(0))+1)
	return err
}
