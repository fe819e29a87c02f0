package etcd

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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
// it. Fields below done are valid once that is closed.
type step struct {
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
	// settle runs before done is closed, also when nobody waits any more.
	settle func()
	done   chan struct{}
	// then runs after done is closed, for one who does not wait. Until it is
	// sent, s is given up when ctx ends.
	then func()
	ctx  context.Context

	epoch *epoch           // in which it was done
	ok    bool             // the compares held
	rev   int64            // of the store after the Txn
	ops   []*pb.ResponseOp // of the branch taken
	err   error            // native
	doubt error            // of a try before, which may have been done
	sent  time.Time        // the first try

	mu    sync.Mutex
	taken bool // on its way to the server
	gone  bool // given up before that
}

// take claims s for sending.
func (s *step) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = !s.gone
	return s.taken
}

// drop gives s up if it was not taken yet.
func (s *step) drop() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = !s.taken
	return s.gone
}

// wait waits for the outcome. An error means that ctx ended before it.
func (s *step) wait(ctx context.Context, b *Backend) error {
	select {
	case <-s.done:
		return nil
	default:
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	case <-b.ctx.Done():
	}
	if !s.drop() {
		return b.interrupted(ctx, true)
	}
	s.err = b.interrupted(ctx, false)
	s.finish()
	return s.err
}

func (s *step) finish() {
	if s.settle != nil {
		s.settle()
	}
	close(s.done)
}

// writer sends steps, as many in one Txn as are waiting.
type writer struct {
	b     *Backend
	mu    sync.Mutex
	queue []*step
	busy  int // senders at work
	limit int // steps in a Txn; less when the server allows less
}

func (w *writer) init(b *Backend) { w.b, w.limit = b, maxBatch }

// submit queues steps, in this order, and returns at once.
func (w *writer) submit(steps ...*step) {
	for _, s := range steps {
		s.done = make(chan struct{})
	}
	w.mu.Lock()
	w.queue = append(w.queue, steps...)
	start := w.busy < maxInFlight
	if start {
		w.busy++
	}
	w.mu.Unlock()
	if start && !w.b.spawn(w.send) {
		w.send() // closed: nothing is sent any more
	}
}

// send works until the queue is empty.
func (w *writer) send() {
	for {
		// Let those that run submit what they are about to: it costs nothing
		// when there is nobody, and makes fuller Txns when there are many.
		runtime.Gosched()
		batch, ended := w.next()
		for _, s := range ended {
			s.err = w.b.interrupted(s.ctx, false)
			s.finish()
		}
		w.deliver(ended)
		if len(batch) == 0 {
			return
		}
		w.do(batch)
		w.deliver(batch)
	}
}

// next takes the next Txn's steps from the queue, and those whose starter has
// given up. When there are none to send the sender is done, decided under the
// same lock.
func (w *writer) next() (batch, ended []*step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rest []*step
	names, bytes := map[string]bool{}, 0
	for i, s := range w.queue {
		if len(batch) >= w.limit {
			rest = append(rest, w.queue[i:]...)
			break
		}
		if names[s.name] || len(batch) > 0 && bytes+s.size > maxBatchBytes {
			names[s.name] = true // nor may a later one of that name overtake it
			rest = append(rest, s)
			continue
		}
		if s.ctx != nil && s.ctx.Err() != nil {
			ended = append(ended, s)
			continue
		}
		if s.take() {
			names[s.name] = true
			bytes += s.size
			batch = append(batch, s)
		}
	}
	w.queue = rest
	if len(batch) == 0 {
		w.busy--
	}
	return batch, ended
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

func (w *writer) shrink() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = max(1, w.limit/2)
}

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
