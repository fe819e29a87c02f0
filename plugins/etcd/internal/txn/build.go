package txn

import (
	"context"
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

// single makes a request without nested transactions, which are slower. Where it
// fails, its other branch reads whether holds was why.
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
	var refused []*Step
	var reads [][]*pb.RequestOp
	for _, s := range batch {
		if !s.OK {
			refused, reads = append(refused, s), append(reads, s.Req.Failure)
		}
	}
	n, err := w.ReadEach(w.cluster.Context(), reads, func(i int, r Found) {
		s := refused[i]
		s.Generation, s.Rev, s.Ops = r.Generation, r.Rev, r.Ops
	})
	for _, s := range refused[n:] {
		s.Err = w.cluster.Untouched(err) // it was refused: only the reason is missing
	}
}

// Found is what a group of reads has found.
type Found struct {
	Ops        []*pb.ResponseOp
	Rev        int64       // of the store then
	Generation *Generation // in which that counts
}

// ReadEach does groups of reads, each of them at one revision, and as many in one
// Txn as the server allows. It passes on what they have found, in their order, and
// returns of how many. Its error, by which there are fewer, is native.
func (w *Writer) ReadEach(ctx context.Context, groups [][]*pb.RequestOp, found func(int, Found)) (n int, err error) {
	for n < len(groups) {
		var ops []*pb.RequestOp
		end := n
		for end < len(groups) && (end == n || len(ops)+len(groups[end]) <= w.most()) {
			ops = append(ops, groups[end]...)
			end++
		}
		resp, g, err := w.Read(ctx, ops...)
		if end-n > 1 && w.tooMany(err, len(ops)) {
			continue
		}
		if err != nil {
			return n, err
		}
		for at := 0; n < end; n++ {
			next := at + len(groups[n])
			found(n, Found{resp.Responses[at:next], resp.Header.Revision, g})
			at = next
		}
	}
	return n, nil
}
