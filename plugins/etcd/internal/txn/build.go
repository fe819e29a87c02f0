package txn

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// single makes the Txn for one operation, without nesting, because nested Txns are slower. If a
// compare fails, the Txn also reads the generation's key, to show whether the store lost its data.
func single(r *pb.TxnRequest, holds *pb.Compare) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: slices.Concat(r.Compare, []*pb.Compare{holds}),
		Success: r.Success,
		Failure: slices.Concat(r.Failure, []*pb.RequestOp{Range(&pb.RangeRequest{Key: holds.Key})}),
	}
}

// lookAfter does the reads that the refused steps of batch have in Req.Failure. A shared Txn is
// sent without these reads, because refusals are rare under load, and the reads would be most of
// the Txn.
func (w *Writer) lookAfter(batch []*Step) {
	var refused []*Step
	var reads [][]*pb.RequestOp
	for _, s := range batch {
		if !s.OK {
			refused, reads = append(refused, s), append(reads, s.Req.Failure)
		}
	}
	n, err := w.ReadEach(w.cluster.Context(), reads, func(i int, r Found) {
		refused[i].Found = r
	})
	for _, s := range refused[n:] {
		s.Err = w.cluster.Untouched(err) // the step was refused: only the reason is unknown
	}
}

// Found is the answer of the store to reads, or to a step.
type Found struct {
	Ops        []*pb.ResponseOp
	Rev        int64       // the store's revision when it answered
	Generation *Generation // the generation that Rev belongs to
}

// ReadEach sends groups of read operations. All reads of a group see the same revision. One Txn has
// as many groups as the server allows. ReadEach calls the function found with each group's answer,
// in order. It returns the number of answered groups. Its error is the client library's.
func (w *Writer) ReadEach(ctx context.Context, groups [][]*pb.RequestOp, found func(int, Found)) (n int, err error) {
	for n < len(groups) {
		var ops []*pb.RequestOp
		end := n
		for end < len(groups) && (end == n || len(ops)+len(groups[end]) <= w.most()) {
			ops = append(ops, groups[end]...)
			end++
		}
		all, err := w.Read(ctx, ops...)
		if end-n > 1 && w.tooMany(err, len(ops)) {
			continue
		}
		if err != nil {
			return n, err
		}
		for at := 0; n < end; n++ {
			next := at + len(groups[n])
			found(n, Found{all.Ops[at:next], all.Rev, all.Generation})
			at = next
		}
	}
	return n, nil
}
