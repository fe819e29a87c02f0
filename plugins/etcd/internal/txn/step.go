// Package txn sends transactions to etcd. The waiting operations of many callers share one
// transaction. If the store has lost its data, operations that name old revisions are not done.
package txn

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Step is one operation on the store, with its compares and its outcome. The
// fields below Until are valid once the step is answered.
type Step struct {
	kit.Ticket
	Name string         // the lock's name: no two steps of one Txn share it
	Req  *pb.TxnRequest // what to do if the compares hold, and what to read if not
	In   *Generation    // the generation of Req's revisions; nil if Req has none
	Size int            // bytes of values in request or answer

	// Alongside, unless nil, runs when the step is sent. It may start work that must end before Then
	// runs. It returns a channel that is closed when this work is done, or nil if there is no work.
	Alongside func() <-chan struct{}
	// Repeatable is true if a second try does no harm, even if the first try arrives later. If no
	// answer comes, the step is sent again, until the request timeout is over.
	Repeatable bool
	// Done reports whether the server has done the step. It is called if the compares fail, because an
	// earlier try may have succeeded, or if the result of the compares is unknown. It may read the
	// answers to Req.Failure in Ops, and correct Rev. If Done is nil, the outcome stays as it is.
	Done func() bool
	// OnAnswer runs before any caller sees the answer, even when no caller waits.
	OnAnswer func()
	// Then runs after OnAnswer, for a caller that does not wait. If the context
	// Until ends before the step is sent, the step is given up.
	Then  func()
	Until context.Context

	Found       // the answers to Req.Success or Req.Failure; to Req.Failure if Done has set OK
	OK    bool  // the compares held
	Err   error // an error of the client library
	Doubt error // the error of a try that may have been done

	sent      time.Time       // when the first try was sent
	alongside <-chan struct{} // what Alongside has returned
}

func (s *Step) finish() {
	if s.OnAnswer != nil {
		s.OnAnswer()
	}
	s.End()
}

// Absent returns a compare that holds when key does not exist.
func Absent(key string) *pb.Compare { return created(key, nil, pb.Compare_EQUAL, 0) }

// NoneUnder returns a compare that holds when no key begins with prefix.
func NoneUnder(prefix string) *pb.Compare {
	return created(prefix, Beyond(prefix), pb.Compare_EQUAL, 0)
}

// NoneBefore returns a compare that holds when no key with this prefix was created before rev.
func NoneBefore(prefix string, rev int64) *pb.Compare {
	return created(prefix, Beyond(prefix), pb.Compare_GREATER, rev-1)
}

// At returns a compare that holds when key exists and was created at rev.
func At(key string, rev int64) *pb.Compare { return created(key, nil, pb.Compare_EQUAL, rev) }

// HasValue returns a compare that holds when key exists and has that value.
func HasValue(key string, value []byte) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: value}}
}

// OnLease returns a compare that holds when key exists on the lease with this id; 0 means no lease.
func OnLease(key string, lease int64) *pb.Compare {
	return &pb.Compare{Key: []byte(key), Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: lease}}
}

func created(key string, end []byte, result pb.Compare_CompareResult, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), RangeEnd: end, Result: result, Target: pb.Compare_CREATE,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev},
	}
}

// Put returns an operation that puts key on the lease with this id, where 0 means no lease.
func Put(key string, value []byte, lease int64) *pb.RequestOp {
	return Change(&pb.PutRequest{Key: []byte(key), Value: value, Lease: lease})
}

// Change returns the put r as an operation. An existing key keeps its create revision, and keeps
// its value or lease if r says so.
func Change(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

// Delete deletes key.
func Delete(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

// Range reads keys.
func Range(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// puts reports whether any of ops is a put. A server without space refuses even a conditional put.
func puts(ops []*pb.RequestOp) bool {
	return slices.ContainsFunc(ops, func(op *pb.RequestOp) bool {
		return op.GetRequestPut() != nil || puts(op.GetRequestTxn().GetSuccess())
	})
}

// When returns an operation that does op if the compare c holds. No other operation depends on c.
func When(c *pb.Compare, op *pb.RequestOp) *pb.RequestOp {
	return nest(&pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{op}})
}

func nest(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

// Exists returns a read operation that shows whether key exists.
func Exists(key string) *pb.RequestOp {
	return Range(&pb.RangeRequest{Key: []byte(key), KeysOnly: true})
}

// Beyond returns the end of the range of keys that begin with prefix. The
// prefix must contain a byte below 0xff.
func Beyond(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
}
