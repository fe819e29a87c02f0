// Package txn sends transactions to etcd: the operations of many callers, as
// many in one as are waiting, and none on other data than they were made for.
package txn

import (
	"context"
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

	// Alongside runs when the step is sent, unless it is nil. It may start something
	// that Then waits for too, and returns what is closed when that is done, or
	// nil.
	Alongside func() <-chan struct{}
	// Repeatable reports whether the same again does no harm, also when the first
	// arrives late: then a step without an answer is sent once more.
	Repeatable bool
	// Done reports whether the step was done although its compares do not hold
	// now, or the answer does not tell: by a try before, see Doubt. It may look at
	// Ops, those of Failure, and correct Rev. When it is nil that cannot be known.
	Done func() bool
	// OnAnswer runs before anybody sees the answer, also when nobody waits any more.
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

// alone reports whether nothing is under way that was started beside the step.
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
