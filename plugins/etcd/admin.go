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
	var open lockState // the name whose entries are being read
	flush := func() bool { return open.first == nil || emit(b.holder(ctx, open)) }
	for {
		resp, gen, err := b.txns.Read(ctx, txn.Range(&pb.RangeRequest{Key: next, RangeEnd: end, Limit: listPage}))
		if err != nil {
			return b.cluster.Wrap(err)
		}
		page := resp.Responses[0].GetResponseRange()
		for _, kv := range page.GetKvs() {
			if open.first == nil || b.space.nameOf(string(kv.Key)) != b.space.nameOf(string(open.first.Key)) {
				if !flush() {
					return nil
				}
				open = lockState{generation: gen, first: kv}
			}
			if open.entries++; kv.CreateRevision < open.first.CreateRevision {
				open.first = kv
			}
			next = append(kv.Key, 0)
		}
		if !page.GetMore() {
			flush()
			return nil
		}
	}
}

// Break reads who holds the lock, then deletes that entry, if the token is still the
// same.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	v, err := b.readLock(ctx, name)
	if err != nil {
		return err
	}
	if v.first == nil || v.generation.Token(v.first.CreateRevision) != token {
		return &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	s := &txn.Step{Name: name, In: v.generation, Req: &pb.TxnRequest{
		Compare: []*pb.Compare{txn.At(string(v.first.Key), v.first.CreateRevision)},
		Success: []*pb.RequestOp{txn.Delete(string(v.first.Key))},
		Failure: []*pb.RequestOp{entries(b.space, name, 1)},
	}}
	s.Done = func() bool { return true } // it is gone, and was there
	b.txns.Submit(s)
	return b.finish(ctx, s)
}
