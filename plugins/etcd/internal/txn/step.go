// Package txn sends transactions to etcd: the operations of many callers, as
// many in one as are waiting, and none on other data than they were made for.
package txn

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Step is one operation of the store with its own compares, and what came of
// it. The fields below Until are valid once it is answered.
type Step struct {
	kit.Ticket
	Name string         // of the lock: no two steps of one Txn share it
	Req  *pb.TxnRequest // what to do when the compares hold, and what to read when not
	In   *Generation    // of the revisions that Req compares; nil when there are none
	Size int            // bytes of values, sent or answered

	// Alongside runs when the step is sent, unless it is nil. It may start work
	// that Then waits for too, and returns a channel that is closed when that is
	// done, or nil.
	Alongside func() <-chan struct{}
	// Repeatable reports whether a repetition does no harm, even if the first
	// sending arrives late. Without an answer such a step is sent once more.
	Repeatable bool
	// Done reports whether the step was done although its compares do not hold
	// now, or the answer does not tell: by a try before, see Doubt. It may look at
	// Ops, those of Failure, and correct Rev. When it is nil that cannot be known.
	Done func() bool
	// OnAnswer runs before any caller sees the answer, even when no caller waits.
	OnAnswer func()
	// Then runs after that, for one who does not wait. Before it is sent, the
	// step is given up when Until ends.
	Then  func()
	Until context.Context

	Generation *Generation      // in which it was done
	OK         bool             // the compares held
	Rev        int64            // of the store after the Txn, or after the reads of Failure
	Ops        []*pb.ResponseOp // of the branch taken; of Failure when Done has made it OK
	Err        error            // native
	Doubt      error            // of a try that may have been done

	sent      time.Time       // the first try
	alongside <-chan struct{} // what Alongside has returned
}

func (s *Step) finish() {
	if s.OnAnswer != nil {
		s.OnAnswer()
	}
	s.End()
}

// alone reports whether no work started beside the step is under way.
func (s *Step) alone() bool {
	if s.alongside == nil {
		return true
	}
	select {
	case <-s.alongside:
		return true
	default:
		return false
	}
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

// HasValue returns a compare that holds when key exists with that value.
func HasValue(key string, value []byte) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_VALUE,
		TargetUnion: &pb.Compare_Value{Value: value},
	}
}

// OnLease returns a compare that holds when key exists and is on that lease, 0 for none.
func OnLease(key string, lease int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_LEASE,
		TargetUnion: &pb.Compare_Lease{Lease: lease},
	}
}

func created(key string, end []byte, result pb.Compare_CompareResult, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), RangeEnd: end, Result: result, Target: pb.Compare_CREATE,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev},
	}
}

// Put puts key on a lease, 0 for none.
func Put(key string, value []byte, lease int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, Lease: lease})
}

// Move puts the key on another lease; value and create revision stay.
func Move(key string, lease int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), IgnoreValue: true, Lease: lease})
}

// Touch puts the key as it is, by which its version rises.
func Touch(key string) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), IgnoreValue: true, IgnoreLease: true})
}

// Replace replaces the value; lease and create revision stay.
func Replace(key string, value []byte) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, IgnoreLease: true})
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
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

// puts reports whether ops put keys. A put needs space, even behind a compare.
func puts(ops []*pb.RequestOp) bool {
	return slices.ContainsFunc(ops, func(op *pb.RequestOp) bool {
		return op.GetRequestPut() != nil || puts(op.GetRequestTxn().GetSuccess())
	})
}

// When does op if c holds. Nothing else in the Txn depends on c.
func When(c *pb.Compare, op *pb.RequestOp) *pb.RequestOp {
	return nest(&pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{op}})
}

func nest(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

// Exists reads whether key exists.
func Exists(key string) *pb.RequestOp {
	return Range(&pb.RangeRequest{Key: []byte(key), KeysOnly: true})
}

// Beyond is the end of the range of keys that begin with prefix, which must have
// a byte below 0xff.
func Beyond(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
}
