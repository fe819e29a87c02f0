package txn

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// nested makes one Txn of many.
func nested(batch []*Step, holds *pb.Compare) *pb.TxnRequest {
	req := &pb.TxnRequest{Compare: []*pb.Compare{holds}, Success: make([]*pb.RequestOp, len(batch))}
	for i, s := range batch {
		req.Success[i] = nest(&pb.TxnRequest{Compare: s.Req.Compare, Success: s.Req.Success})
	}
	return req
}

// single does without nesting, which is slower. Whether it was holds that
// failed is read in the other branch.
func single(r *pb.TxnRequest, holds *pb.Compare) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: slices.Concat(r.Compare, []*pb.Compare{holds}),
		Success: r.Success,
		Failure: slices.Concat(r.Failure, []*pb.RequestOp{Range(&pb.RangeRequest{Key: holds.Key})}),
	}
}

// lookAfter reads, for the refused steps of a shared Txn, what a single one
// reads in its other branch. Refusals are rare where much is asked for at a
// time, and those branches would be most of the Txn.
func (w *Writer) lookAfter(batch []*Step) {
	for len(batch) > 0 {
		var ops []*pb.RequestOp
		part := 0
		for part < len(batch) && len(ops) < MaxReads {
			if s := batch[part]; !s.OK {
				ops = append(ops, s.Req.Failure...)
			}
			part++
		}
		if len(ops) > 0 {
			w.explain(batch[:part], ops)
		}
		batch = batch[part:]
	}
}

// explain reads ops, which are those of the refused steps of batch.
func (w *Writer) explain(batch []*Step, ops []*pb.RequestOp) {
	resp, g, err := w.Read(w.cluster.Context(), ops...)
	at := 0
	for _, s := range batch {
		if s.OK {
			continue
		}
		if err != nil {
			s.Err = w.cluster.Untouched(err) // it was refused: only the reason is missing
			continue
		}
		s.Generation, s.Rev = g, resp.Header.Revision
		s.Ops = resp.Responses[at : at+len(s.Req.Failure)]
		at += len(s.Req.Failure)
	}
}
