package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/core/driver"
)

// listPage is how many keys are read at a time: so many of the largest values
// fit into an answer.
const listPage = 48

// List reads a page at a time; what changes meanwhile may be seen or not.
func (b *Backend) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	from := b.space.names + prefix
	end := beyond(from)
	next := []byte(from)
	var open seen // the name whose keys are being read
	flush := func() bool { return open.hold == nil || emit(b.holder(ctx, open)) }
	for {
		resp, err := b.txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{read(&pb.RangeRequest{Key: next, RangeEnd: end, Limit: listPage})}})
		if err != nil {
			return b.wrap(err)
		}
		page := resp.Responses[0].GetResponseRange()
		for _, kv := range page.GetKvs() {
			name, kind, _ := b.space.parse(string(kv.Key))
			switch {
			case kind == kindHold:
				if !flush() {
					return nil
				}
				open = seen{hold: kv}
			case open.hold != nil && b.sameName(open, name):
				open.places++
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

// Break reads who holds the lock, then deletes that key, and the place that came
// with it, if the token is still the same.
func (b *Backend) Break(ctx context.Context, name string, token uint64) error {
	resp, e, err := b.txnIn(ctx, &pb.TxnRequest{Success: look(b.space, name)})
	if err != nil {
		return b.wrap(err)
	}
	v := seenIn(resp.Responses)
	if v.hold == nil || e.token(v.hold.CreateRevision) != token {
		return &driver.NotHeldError{Holder: b.holder(ctx, v)}
	}
	s := &step{name: name, in: e, req: &pb.TxnRequest{
		Compare: []*pb.Compare{at(string(v.hold.Key), v.hold.CreateRevision)},
		Success: []*pb.RequestOp{remove(string(v.hold.Key))},
		Failure: look(b.space, name),
	}}
	if rec, err := decodeRecord(v.hold.Value); err == nil && rec.place != "" {
		s.req.Success = append(s.req.Success, remove(b.space.place(name, rec.place)))
	}
	b.writer.submit(s)
	if err := s.wait(ctx, b); err != nil {
		return err
	}
	return b.outcome(ctx, s)
}
