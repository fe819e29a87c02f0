package etcd

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// nested makes one Txn of many.
func nested(batch []*step, holds *pb.Compare) *pb.TxnRequest {
	req := &pb.TxnRequest{Compare: []*pb.Compare{holds}, Success: make([]*pb.RequestOp, len(batch))}
	for i, s := range batch {
		own := &pb.TxnRequest{Compare: s.req.Compare, Success: s.req.Success}
		req.Success[i] = &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: own}}
	}
	return req
}

// single does without nesting, which is slower. Whether it was holds that
// failed is read in the other branch.
func single(r *pb.TxnRequest, holds *pb.Compare) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: slices.Concat(r.Compare, []*pb.Compare{holds}),
		Success: r.Success,
		Failure: slices.Concat(r.Failure, []*pb.RequestOp{read(&pb.RangeRequest{Key: holds.Key})}),
	}
}

// lookAfter reads, for the refused steps of a shared Txn, what a single one
// reads in its other branch. Refusals are rare where much is asked for at a
// time, and those branches would be most of the Txn.
func (w *writer) lookAfter(batch []*step) {
	for len(batch) > 0 {
		req, part := &pb.TxnRequest{}, 0
		for part < len(batch) && len(req.Success) < maxReads {
			if s := batch[part]; !s.ok {
				req.Success = append(req.Success, s.req.Failure...)
			}
			part++
		}
		if len(req.Success) > 0 {
			w.tell(batch[:part], req)
		}
		batch = batch[part:]
	}
}

func (w *writer) tell(batch []*step, req *pb.TxnRequest) {
	resp, err := w.b.txn(w.b.ctx, req)
	at := 0
	for _, s := range batch {
		if s.ok {
			continue
		}
		if err != nil {
			s.err = w.b.untouched(err) // it was refused: only the reason is missing
			continue
		}
		s.ops = resp.Responses[at : at+len(s.req.Failure)]
		at += len(s.req.Failure)
	}
}
