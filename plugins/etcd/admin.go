package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// listPage is how many keys are read at a time: so many of the largest values
// fit into an answer.
const listPage = 48

// List reads a page at a time; what changes meanwhile may be seen or not.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	from := b.space.names + prefix
	end := txn.Beyond(from)
	next := []byte(from)
	var open seen // the name whose keys are being read
	flush := func() bool { return open.hold == nil || emit(b.holder(ctx, open)) }
	for {
		resp, gen, err := b.txns.Read(ctx, txn.Range(&pb.RangeRequest{Key: next, RangeEnd: end, Limit: listPage}))
		if err != nil {
			return b.cluster.Wrap(err)
		}
		page := resp.Responses[0].GetResponseRange()
		for _, kv := range page.GetKvs() {
			name, kind, _ := b.space.parse(string(kv.Key))
			switch {
			case kind == kindHold:
				if !flush() {
					return nil
				}
				open = seen{generation: gen, hold: kv}
			case open.hold != nil && b.sameName(open, name):
				open.queued++
			}
			next = append(kv.Key, 0)
		}
		if !page.GetMore() {
			flush()
			return nil
		}
	}
}

func (b *Backend) sameName(v seen, name string) bool {
	own, _, _ := b.space.parse(string(v.hold.Key))
	return own == name
}

// Break reads who holds the lock, then deletes that key, and the queue entry that
// came with it, if the token is still the same.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	v, err := b.look(ctx, name)
	if err != nil {
		return err
	}
	if v.hold == nil || v.generation.Token(v.hold.CreateRevision) != token {
		return &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	s := &txn.Step{Name: name, In: v.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(string(v.hold.Key), v.hold.CreateRevision)},
		Success: []*pb.RequestOp{txn.Delete(string(v.hold.Key))},
		Failure: look(b.space, name),
	}}
	if rec, err := decodeRecord(v.hold.Value); err == nil && rec.entry != "" {
		s.Req.Success = append(s.Req.Success, txn.Delete(b.space.entry(name, rec.entry)))
	}
	s.Done = func() bool { return true } // it is gone, and was there
	b.txns.Submit(s)
	return b.finish(ctx, s)
}
