package txn

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd/internal/cluster"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// maxBatch is the largest number of steps in one Txn. A server allows 128 operations in a Txn by
	// default, and the nesting of steps needs up to four more.
	maxBatch = 120
	// maxBatchBytes keeps a Txn well below the servers' limit of 1.5 MB, and its
	// answer well below the client's limit of 4 MB.
	maxBatchBytes = 512 << 10
	// maxInFlight is the largest number of Txns under way at a time.
	maxInFlight = 2
)

// Writer sends steps (operations on the store). The steps that wait at the same time share one Txn,
// up to a limit. Its methods may be called from any number of goroutines.
type Writer struct {
	cluster *cluster.Cluster
	steps   *kit.Batcher[*Step]
	limit   atomic.Int32 // the most steps, or reads, in a Txn; see tooMany

	key     string // the generation's key
	ended   func() // called when a generation has ended
	present atomic.Pointer[Generation]
	highest atomic.Int64 // the highest revision seen
}

// New returns a Writer. The parameter key names the store's key with the base of tokens. The
// function ended is called when the store has lost its data, before any step changes new data.
func New(c *cluster.Cluster, key string, ended func()) *Writer {
	w := &Writer{cluster: c, key: key, ended: ended}
	w.limit.Store(maxBatch)
	w.steps = kit.NewBatcher(kit.BatcherOptions[*Step]{
		Limits: kit.Limits[*Step]{
			Count: w.most,
			Size:  func(s *Step) int { return s.Size }, Room: func() int { return maxBatchBytes },
			Name: func(s *Step) string { return s.Name }, Claim: (*Step).Claim,
		},
		Senders: maxInFlight, Send: w.serve,
	})
	return w
}

func (w *Writer) most() int { return int(w.limit.Load()) }

// tooMany reports whether the server has refused a Txn of n steps, or reads, because n is too many.
// If so, it limits later Txns to n/2 steps or reads. Servers report their limit, --max-txn-ops, in
// no other way.
func (w *Writer) tooMany(err error, n int) bool {
	if !cluster.Is(err, rpctypes.ErrTooManyOps) {
		return false
	}
	least := int32(max(1, n/2))
	for old := w.limit.Load(); least < old && !w.limit.CompareAndSwap(old, least); old = w.limit.Load() {
	}
	return true
}

// Do submits the step s and waits for its outcome; see [Writer.Wait].
func (w *Writer) Do(ctx context.Context, s *Step) error {
	w.Submit(s)
	return w.Wait(ctx, s)
}

// Run is Do, but also returns the error of the step.
func (w *Writer) Run(ctx context.Context, s *Step) error {
	if err := w.Do(ctx, s); err != nil {
		return err
	}
	return s.Err
}

// Wait waits for the outcome of the step s. An error means that ctx ended first.
func (w *Writer) Wait(ctx context.Context, s *Step) error {
	switch s.Ticket.Wait(ctx) {
	case kit.Answered:
		return nil
	case kit.NotSent:
		s.Err = w.cluster.Untouched(ctx.Err())
		s.finish()
		return s.Err
	}
	return w.cluster.Wrap(ctx.Err())
}

// Submit queues steps, in this order, and returns at once.
func (w *Writer) Submit(steps ...*Step) {
	for _, s := range steps {
		s.Open()
	}
	if w.steps.Add(steps...) {
		return
	}
	for _, s := range steps {
		if s.Claim() {
			s.Err = driver.ErrClosed
			s.finish()
		}
	}
	w.deliver(steps)
}

// Close makes Submit refuse steps, and returns when all earlier steps are answered.
func (w *Writer) Close() { w.steps.Close() }

func (w *Writer) serve(batch []*Step, _ func()) {
	w.do(batch)
	w.deliver(batch)
}

// do sends batch as one Txn. If the server refuses the whole Txn because of one step, do sends each
// step alone. If the Txn has too many steps for the server, do sends the batch in halves.
func (w *Writer) do(batch []*Step) {
	g, err := w.Generation(w.cluster.Context())
	if err == nil {
		batch = w.current(batch, g)
		if len(batch) == 0 {
			return
		}
		err = w.send(batch, g)
	}
	if len(batch) > 1 && err != nil && cluster.Refused(err) {
		part := 1
		if w.tooMany(err, len(batch)) {
			part = (len(batch) + 1) / 2
		}
		for steps := range slices.Chunk(batch, part) {
			w.do(steps)
		}
		return
	}
	if cluster.OutOfSpace(err) && !w.cluster.Harmless(err) {
		w.settle(batch, g, err)
		return
	}
	if err != nil && !w.cluster.Harmless(err) {
		if batch = w.again(batch, err); len(batch) == 0 {
			return
		}
	}
	for _, s := range batch {
		if s.Err = err; err != nil {
			s.Err = cmp.Or(s.Doubt, err)
		}
	}
	if len(batch) > 1 && err == nil {
		w.lookAfter(batch)
	}
	for _, s := range batch {
		if s.Err == nil && !s.OK && s.Done != nil {
			s.OK = s.Done()
		}
		s.finish()
	}
}

// settle is called when the server has answered a batch of generation g by saying that it has no
// space. The server may have done the steps. Steps that put nothing are sent again, because they
// need no space. For each other step, a read shows whether it was done.
func (w *Writer) settle(batch []*Step, g *Generation, full error) {
	var free, rest []*Step
	for _, s := range batch {
		if puts(s.Req.Success) {
			rest = append(rest, s)
			continue
		}
		s.Doubt = cmp.Or(s.Doubt, full)
		free = append(free, s)
	}
	switch {
	case len(rest) == 0: // the server refused even steps that need no space
		for _, s := range free {
			s.Err = s.Doubt
			s.finish()
		}
		return
	case len(free) > 0:
		w.do(free)
	}
	w.lookAfter(rest)
	for _, s := range rest {
		switch {
		case s.Err != nil, s.Done == nil, !s.Generation.Same(g):
			s.Err = cmp.Or(s.Doubt, full)
		case s.Done():
			s.OK = true
		case s.Doubt != nil: // an earlier try of this step may still be under way
			s.Err = s.Doubt
		default:
			s.Err = w.cluster.Untouched(full)
		}
		s.finish()
	}
}

// again repeats steps of batch if err is a reason to ask another member. It repeats the steps that
// may be done twice and whose request timeout is not over. It returns all other steps.
func (w *Writer) again(batch []*Step, err error) (rest []*Step) {
	var twice []*Step
	for _, s := range batch {
		if s.Doubt = cmp.Or(s.Doubt, err); s.Repeatable && cluster.Failing(err) && time.Since(s.sent) < w.cluster.RequestTimeout() && w.cluster.Context().Err() == nil {
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

// current returns the steps to send. It ends each step that was given up before it was sent, and
// each step whose revisions belong to another generation than g, because the compare in every Txn
// checks only that g is the present generation (decision etcd-12).
func (w *Writer) current(batch []*Step, g *Generation) []*Step {
	rest := make([]*Step, 0, len(batch))
	for _, s := range batch {
		switch {
		case s.Until != nil && s.Until.Err() != nil && s.sent.IsZero():
			s.Err = w.cluster.Untouched(s.Until.Err())
		case s.In != nil && !g.Same(s.In):
			s.Generation, s.Err = g, cluster.ErrDataLost
		default:
			rest = append(rest, s)
			continue
		}
		s.finish()
	}
	return rest
}

// send sends batch as one Txn, which does nothing if the generation g has ended. If send returns no
// error, each step has its answer.
func (w *Writer) send(batch []*Step, g *Generation) error {
	holds := w.holds(g)
	var req *pb.TxnRequest
	if len(batch) == 1 {
		req = single(batch[0].Req, holds)
	} else {
		req = &pb.TxnRequest{Compare: []*pb.Compare{holds}, Success: make([]*pb.RequestOp, len(batch))}
		for i, s := range batch {
			req.Success[i] = nest(&pb.TxnRequest{Compare: s.Req.Compare, Success: s.Req.Success})
		}
	}
	now := time.Now()
	for _, s := range batch {
		if s.Alongside != nil {
			s.alongside = s.Alongside()
		}
		if s.sent.IsZero() {
			s.sent = now
		}
	}
	ctx := w.cluster.Context()
	resp, err := w.txn(ctx, false, req)
	if err != nil {
		return err
	}
	over := !resp.Succeeded
	if over && len(batch) == 1 {
		kvs := resp.Responses[len(resp.Responses)-1].GetResponseRange().GetKvs() // of the generation's key
		over = len(kvs) == 0 || !bytes.Equal(kvs[0].Value, g.value())
	}
	if over {
		return errors.Join(cluster.ErrDataLost, w.over(ctx, g))
	}
	for i, s := range batch {
		own := resp
		if len(batch) > 1 {
			own = resp.Responses[i].GetResponseTxn()
		}
		s.OK, s.Found = own.Succeeded, Found{own.Responses, resp.Header.Revision, g}
	}
	return nil
}

// deliver runs the Then functions of batch, in another goroutine if they may wait. A Then function
// may wait for the work that Alongside has started or, after a refused step, for further reads.
func (w *Writer) deliver(batch []*Step) {
	var granted []*Step
	for _, s := range batch {
		switch {
		case s.Then == nil:
		case s.Err != nil || !s.OK:
			w.cluster.Apart(s.Then)
		case s.alongside == nil:
			s.Then()
		default:
			select {
			case <-s.alongside:
				s.Then()
			default:
				granted = append(granted, s)
			}
		}
	}
	if len(granted) == 0 {
		return
	}
	w.cluster.Apart(func() {
		for _, s := range granted {
			s.Then()
		}
	})
}
