package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Observe implements [driver.Observer].
func (u *Unary) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	err := receive(ctx, u.rpc.Observe, name, &lockpb.InspectRequest{Name: name}, func(m *lockpb.InspectReply) bool {
		emit(ToHolder(m.Holder))
		return true
	})
	return Ended(ctx, endless(err))
}

// Notify implements [driver.Notifier].
func (u *Unary) Notify(ctx context.Context, name string, emit func()) error {
	err := receive(ctx, u.rpc.Notify, name, &lockpb.InspectRequest{Name: name}, func(*lockpb.Reply) bool {
		emit()
		return true
	})
	return Ended(ctx, endless(err))
}

// Watch implements [driver.Watcher].
func (u *Unary) Watch(ctx context.Context, emit func(driver.Notice)) error {
	err := receive(ctx, u.rpc.Watch, "", &lockpb.WatchRequest{}, func(m *lockpb.WatchReply) bool {
		emit(toNotice(m.Notice))
		return true
	})
	return Ended(ctx, endless(err))
}

// endless returns the error of a stream that the plugin must not end. If err is nil, the plugin has
// ended the stream all the same, and endless returns an error that says so.
func endless(err error) error {
	if err == nil {
		return fmt.Errorf("%w: %w: it ended the stream", driver.ErrUnavailable, ErrNoAnswer)
	}
	return err
}

// List implements [driver.Admin].
func (u *Unary) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	return receive(ctx, u.rpc.List, "", &lockpb.ListRequest{Prefix: []byte(prefix)}, func(m *lockpb.InspectReply) bool {
		return emit(ToHolder(m.Holder))
	})
}

// receive sends a request, and passes every message of the reply stream to the function each. It
// stops when that function returns false, the stream ends, or a message carries an error.
func receive[Q, M any, A interface {
	*M
	withError
}](
	ctx context.Context, open func(context.Context, Q, ...grpc.CallOption) (grpc.ServerStreamingClient[M], error),
	name string, request Q, each func(A) bool,
) error {
	if err := unsent(ctx, name); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, request)
	if err != nil {
		return outcome(ctx, nil, err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return outcome(ctx, nil, err)
		}
		if e := A(m).GetError(); e != nil {
			return DecodeError(e)
		}
		if !each(m) {
			return nil
		}
	}
}

// Batch implements [driver.Batcher]. It splits a batch that is too large for one message and sends
// each part after the answer to the previous part, so that operations on one name keep their order.
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
	reply, err := ask(ctx, u.rpc.Batch, "", request)
	if err == nil && len(reply.Results) != len(request.Ops) {
		err = driver.ErrUnavailable
	}
	if err != nil {
		return FailAll(len(request.Ops), err)
	}
	results := make([]driver.Result, len(reply.Results))
	for i, r := range reply.Results {
		results[i] = driver.Result{Token: r.Token, Err: DecodeError(r.Error)}
	}
	return results
}

// FailAll returns the results of n operations that all failed with err.
func FailAll(n int, err error) []driver.Result {
	return slices.Repeat([]driver.Result{{Err: err}}, n)
}

// Session is the stream of heartbeats. The plugin sends each heartbeat back.
// Send and Recv may be called concurrently.
type Session = grpc.BidiStreamingClient[lockpb.Heartbeat, lockpb.Heartbeat]

// OpenSession opens the heartbeat stream, which lasts until ctx ends.
func (u *Unary) OpenSession(ctx context.Context) (Session, error) {
	stream, err := u.rpc.Session(ctx)
	return stream, outcome(ctx, nil, err)
}
