package wire

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Observe implements [driver.Elector].
func (u *Unary) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	if err := unsent(ctx, name); err != nil {
		return Ended(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.rpc.Observe(ctx, &lockpb.InspectRequest{Name: name})
	err = receive(ctx, stream, err, func(m *lockpb.InspectReply) bool {
		emit(ToHolder(m.Holder))
		return true
	})
	return Ended(ctx, endless(err))
}

// Watch implements [driver.Watcher].
func (u *Unary) Watch(ctx context.Context, emit func(driver.Notice)) error {
	if err := unsent(ctx, ""); err != nil {
		return Ended(ctx, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.rpc.Watch(ctx, &lockpb.WatchRequest{})
	err = receive(ctx, stream, err, func(m *lockpb.WatchReply) bool {
		emit(toNotice(m.Notice))
		return true
	})
	return Ended(ctx, endless(err))
}

// endless is the outcome of a stream that only the caller ends.
func endless(err error) error {
	if err == nil {
		return fmt.Errorf("%w: %w: it ended the stream", driver.ErrUnavailable, ErrNoAnswer)
	}
	return err
}

// List implements [driver.Admin].
func (u *Unary) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	if err := unsent(ctx, ""); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := u.rpc.List(ctx, &lockpb.ListRequest{Prefix: []byte(prefix)})
	return receive(ctx, stream, err, func(m *lockpb.InspectReply) bool { return emit(ToHolder(m.Holder)) })
}

// receive hands messages to each until it answers false, the stream ends, or a
// message carries an error. The caller's cancel ends the stream.
func receive[M interface{ GetError() *lockpb.Error }](
	ctx context.Context, stream interface{ Recv() (M, error) }, opened error, each func(M) bool,
) error {
	if opened != nil {
		return outcome(ctx, nil, opened)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return outcome(ctx, nil, err)
		}
		if e := m.GetError(); e != nil {
			return DecodeError(e)
		}
		if !each(m) {
			return nil
		}
	}
}

// Batch implements [driver.Batcher]. It splits what is too large for a message
// and sends the parts one after the other, which keeps the order of operations
// on one name.
func (u *Unary) Batch(ctx context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, 0, len(ops))
	for len(ops) > 0 {
		request := &lockpb.BatchRequest{}
		n, size := 0, 0
		for n < len(ops) && n < maxBatchOps && (n == 0 || size < maxBatch) {
			op := fromOp(ops[n])
			request.Ops = append(request.Ops, op)
			size += proto.Size(op)
			n++
		}
		results = append(results, u.batch(ctx, request)...)
		ops = ops[n:]
	}
	return results
}

func (u *Unary) batch(ctx context.Context, request *lockpb.BatchRequest) []driver.Result {
	results := make([]driver.Result, len(request.Ops))
	err := unsent(ctx, "")
	var reply *lockpb.BatchReply
	if err == nil {
		reply, err = u.rpc.Batch(ctx, request)
		err = outcome(ctx, reply.GetError(), err)
	}
	if err == nil && len(reply.GetResults()) != len(results) {
		err = driver.ErrUnavailable
	}
	for i := range results {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = driver.Result{Token: reply.Results[i].Token, Err: DecodeError(reply.Results[i].Error)}
	}
	return results
}

// Session is the stream of heartbeats. Send and Recv may run concurrently.
type Session struct {
	stream grpc.BidiStreamingClient[lockpb.Heartbeat, lockpb.Heartbeat]
}

// OpenSession opens the heartbeat stream; it lasts until ctx ends.
func (u *Unary) OpenSession(ctx context.Context) (*Session, error) {
	stream, err := u.rpc.Session(ctx)
	if err != nil {
		return nil, outcome(ctx, nil, err)
	}
	return &Session{stream: stream}, nil
}

// Send sends one heartbeat.
func (s *Session) Send(seq uint64) error { return s.stream.Send(&lockpb.Heartbeat{Seq: seq}) }

// Recv returns the next heartbeat that came back.
func (s *Session) Recv() (uint64, error) {
	m, err := s.stream.Recv()
	return m.GetSeq(), err
}
