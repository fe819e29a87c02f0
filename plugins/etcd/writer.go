package etcd

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/batch"
)

const (
	// maxBatch is how many operations share a Txn. The servers' stock limit is
	// 128, and of that a nested operation needs up to four on top.
	maxBatch = 120
	// maxBatchBytes keeps a Txn well below the servers' limit of 1.5 MB, and its
	// answer below the client's of 4 MB.
	maxBatchBytes = 512 << 10
	// maxRecord is what a deleted key may have in the answer.
	maxRecord = 64 << 10
	// maxInFlight is how many Txns are under way at a time. What is asked
	// meanwhile shares the next one.
	maxInFlight = 2
)

// step is one operation of the store with its own compares, and what came of
// it. Fields below then are valid once it is answered.
type step struct {
	batch.Ticket
	name string // of the lock: no two steps of one Txn share it
	req  *pb.TxnRequest
	in   *epoch // of the revisions that req compares; nil when there are none
	size int    // bytes of values, sent or answered

	// beside runs when s is sent, unless it is nil. It may start a keepalive that
	// s needs too.
	beside func()
	beat   *beat
	after  bool // the keepalive is sent when s was done
	// twice reports whether the same again does no harm, also when the first arrives
	// late: then a step without an answer is sent once more.
	twice bool
	// settle runs before anybody sees the answer, also when nobody waits any more.
	settle func()
	// then runs after that, for one who does not wait. Until it is sent, s is
	// given up when ctx ends.
	then func()
	ctx  context.Context

	epoch *epoch           // in which it was done
	ok    bool             // the compares held
	rev   int64            // of the store after the Txn
	ops   []*pb.ResponseOp // of the branch taken
	err   error            // native
	doubt error            // of a try before, which may have been done
	sent  time.Time        // the first try
}

// wait waits for the outcome. An error means that ctx ended before it.
func (s *step) wait(ctx context.Context, b *Backend) error {
	switch s.Wait(ctx) {
	case batch.Answered:
		return nil
	case batch.NotSent:
		s.err = b.interrupted(ctx, false)
		s.finish()
		return s.err
	}
	return b.interrupted(ctx, true)
}

func (s *step) finish() {
	if s.settle != nil {
		s.settle()
	}
	s.End()
}

// writer sends steps, as many in one Txn as are waiting.
type writer struct {
	b     *Backend
	steps *batch.Batcher[*step]
	limit atomic.Int32 // steps in a Txn; less when the server allows less
}

func (w *writer) init(b *Backend) {
	w.b = b
	w.limit.Store(maxBatch)
	w.steps = batch.New(batch.Options[*step]{
		Limits: batch.Limits[*step]{
			Count: func() int { return int(w.limit.Load()) },
			Size:  func(s *step) int { return s.size }, Room: func() int { return maxBatchBytes },
			Name: func(s *step) string { return s.name }, Claim: (*step).Claim,
		},
		Senders: maxInFlight, Send: w.serve,
	})
}

// submit queues steps, in this order, and returns at once.
func (w *writer) submit(steps ...*step) {
	for _, s := range steps {
		s.Open()
	}
	if w.steps.Add(steps...) {
		return
	}
	for _, s := range steps {
		if s.Claim() {
			s.err = driver.ErrClosed
			s.finish()
		}
	}
	w.deliver(steps)
}

// serve sends batch, but for the steps whose starter has given up.
func (w *writer) serve(batch []*step, _ func()) {
	var due []*step
	for _, s := range batch {
		if s.ctx == nil || s.ctx.Err() == nil {
			due = append(due, s)
			continue
		}
		s.err = w.b.interrupted(s.ctx, false)
		s.finish()
	}
	if len(due) > 0 {
		w.do(due)
	}
	w.deliver(batch)
}

// do sends batch as one Txn. When the server refuses the whole because of one,
// each is sent alone.
func (w *writer) do(batch []*step) {
	e, err := w.b.mint.load(w.b.ctx)
	var answers []*pb.TxnResponse
	var rev int64
	if err == nil {
		batch = w.current(batch, e)
		if len(batch) == 0 {
			return
		}
		answers, rev, err = w.txn(batch, e)
	}
	if len(batch) > 1 && err != nil && refused(err) {
		if is(err, rpctypes.ErrTooManyOps) {
			w.shrink()
		}
		for i := range batch {
			w.do(batch[i : i+1])
		}
		return
	}
	if err != nil && !w.b.harmless(err) {
		if batch = w.again(batch, err); len(batch) == 0 {
			return
		}
	}
	for i, s := range batch {
		s.epoch, s.rev, s.err = e, rev, err
		switch {
		case err == nil:
			s.ok, s.ops = answers[i].Succeeded, answers[i].Responses
		case s.doubt != nil:
			s.err = s.doubt
		}
	}
	if len(batch) > 1 && err == nil {
		w.lookAfter(batch)
	}
	for _, s := range batch {
		s.finish()
	}
}

// again sends those of batch once more that may be done twice, as long as their
// time is not over, and returns the others.
func (w *writer) again(batch []*step, err error) (rest []*step) {
	var twice []*step
	for _, s := range batch {
		if s.doubt = cmp.Or(s.doubt, err); s.twice && failing(err) && time.Since(s.sent) < w.b.opts.RequestTimeout && w.b.ctx.Err() == nil {
			twice = append(twice, s)
		} else {
			rest = append(rest, s)
		}
	}
	if len(twice) > 0 {
		w.do(twice)
	}
	return rest
}

// current finishes the steps whose revisions are of an epoch before e, and
// returns the others. A key of e may have been created at such a revision by
// somebody else, and the epoch's own compare would not see it: the sender has
// learned of e since the step was prepared.
func (w *writer) current(batch []*step, e *epoch) []*step {
	rest := make([]*step, 0, len(batch))
	for _, s := range batch {
		if s.in == nil || e.same(s.in) {
			rest = append(rest, s)
			continue
		}
		s.epoch, s.err = e, errEpoch
		s.finish()
	}
	return rest
}

// txn does batch if e has not ended.
func (w *writer) txn(batch []*step, e *epoch) ([]*pb.TxnResponse, int64, error) {
	var req *pb.TxnRequest
	if len(batch) == 1 {
		req = single(batch[0].req, w.b.mint.holds(e))
	} else {
		req = nested(batch, w.b.mint.holds(e))
	}
	now := time.Now()
	for _, s := range batch {
		if s.beside != nil {
			s.beside()
		}
		if s.sent.IsZero() {
			s.sent = now
		}
	}
	resp, err := w.b.send(w.b.ctx, false, req)
	if err != nil {
		return nil, 0, err
	}
	over := !resp.Succeeded
	answers := []*pb.TxnResponse{resp}
	if len(batch) == 1 {
		over = over && !w.b.mint.goesOn(e, resp.Responses)
	} else if !over {
		answers = make([]*pb.TxnResponse, len(batch))
		for i := range answers {
			answers[i] = resp.Responses[i].GetResponseTxn()
		}
	}
	if over {
		err = errors.Join(errEpoch, w.b.mint.over(w.b.ctx, e))
	}
	return answers, resp.Header.Revision, err
}

func (w *writer) shrink() { w.limit.Store(max(1, w.limit.Load()/2)) }

// txn does a Txn without compares of its own, of reads: again when it turns out
// that the epoch has ended.
func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, _, err := b.txnIn(ctx, req)
	return resp, err
}

// txnIn is txn; it returns the epoch too, in which the answer's revisions count.
func (b *Backend) txnIn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, *epoch, error) {
	for range 2 {
		e, err := b.mint.load(ctx)
		if err != nil {
			return nil, nil, err
		}
		req.Compare = []*pb.Compare{b.mint.holds(e)}
		resp, err := b.send(ctx, true, req)
		if err != nil || resp.Succeeded {
			return resp, e, err
		}
		if err := b.mint.over(ctx, e); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errEpoch
}

// send sends one request, which may be done twice or not.
func (b *Backend) send(ctx context.Context, twice bool, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := call(b, ctx, twice, func(ctx context.Context, c *conn) (*pb.TxnResponse, error) { return c.kv.Txn(ctx, req) })
	if err == nil {
		b.mint.see(resp.Header.Revision)
		b.members.see(resp.Header.RaftTerm)
	}
	return resp, err
}
