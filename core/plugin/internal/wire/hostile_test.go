package wire

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// These fuzz targets pass arbitrary messages to one end of protocol version 1.
// They do not test gRPC itself, which reads the bytes from the connection.

// echo is a backend with every capability of version 1. Its answers repeat parts of the request.
type echo struct{ driver.Backend }

func (echo) Properties() driver.Properties {
	return driver.Properties{Name: "echo", Capabilities: []driver.Capability{
		driver.CapWaiter, driver.CapNotifier, driver.CapObserver, driver.CapWatcher, driver.CapBatcher, driver.CapAdmin,
	}}
}

func answer(r driver.Request) (uint64, error) {
	h := driver.Holder{Name: r.Name, Owner: r.Owner, Label: r.Label, Value: r.Value, Token: r.Token, TTL: r.TTL}
	switch {
	case strings.HasPrefix(r.Name, "h"):
		return 0, &driver.HeldError{Holder: h}
	case strings.HasPrefix(r.Name, "n"):
		return 0, &driver.NotHeldError{Holder: h}
	case strings.HasPrefix(r.Name, "t"):
		return 0, errors.New(r.Name + r.Label)
	}
	return r.Token, nil
}

func only(r driver.Request) error {
	_, err := answer(r)
	return err
}

func (echo) TryAcquire(_ context.Context, r driver.Request) (uint64, error) { return answer(r) }
func (echo) Renew(_ context.Context, r driver.Request) error                { return only(r) }
func (echo) Release(_ context.Context, r driver.Request) error              { return only(r) }
func (echo) Proclaim(_ context.Context, r driver.Request) error             { return only(r) }
func (echo) Wait(_ context.Context, r driver.Request, _ time.Duration) (driver.Grant, error) {
	return driver.Grant{}, only(r)
}
func (echo) Break(_ context.Context, name string, token uint64) error {
	return only(driver.Request{Name: name, Token: token})
}
func (echo) Check(context.Context) error { return driver.ErrDenied }
func (echo) Inspect(_ context.Context, name string) (driver.Holder, error) {
	return driver.Holder{Name: name, TTL: -1}, only(driver.Request{Name: name})
}

func (e echo) List(ctx context.Context, prefix string, emit func(driver.Holder) bool) error {
	h, err := e.Inspect(ctx, prefix)
	emit(h)
	return err
}

func (e echo) Observe(ctx context.Context, name string, emit func(driver.Holder)) error {
	h, err := e.Inspect(ctx, name)
	emit(h)
	return err
}

func (echo) Notify(_ context.Context, name string, emit func()) error {
	emit()
	return only(driver.Request{Name: name})
}

func (echo) Batch(_ context.Context, ops []driver.Op) []driver.Result {
	results := make([]driver.Result, len(ops))
	for i, op := range ops {
		results[i].Token, results[i].Err = answer(op.Request)
	}
	return results
}

// outlet replaces the server's end of a gRPC stream.
type outlet[M any] struct {
	grpc.ServerStream
	t    *testing.T
	sent int
}

func (o *outlet[M]) Context() context.Context { return o.t.Context() }

func (o *outlet[M]) Send(m *M) error {
	o.sent++
	sendable(o.t, any(m).(proto.Message))
	return nil
}

func sendable(t *testing.T, m proto.Message) {
	t.Helper()
	if _, err := proto.Marshal(m); err != nil {
		t.Errorf("%v cannot be sent: %v", m, err)
	}
}

// FuzzServer plays a host that sends arbitrary messages. It checks that answers can be encoded.
func FuzzServer(f *testing.F) {
	r := fromRequest(driver.Request{Name: "held", Owner: "o", Label: "l", Value: []byte{}, Token: 1, TTL: 2})
	for i, m := range []proto.Message{
		r, r, r, r, &lockpb.InspectRequest{Name: "t"}, &lockpb.WaitRequest{Request: r, MaxNs: -1},
		&lockpb.BreakRequest{Name: []byte{'n', 0xff}}, &lockpb.BatchRequest{Ops: []*lockpb.Op{{Request: r}, {Kind: 9}}},
		&lockpb.ListRequest{Prefix: []byte{'t', 0xff}}, &lockpb.InspectRequest{Name: "h"}, &lockpb.CheckRequest{}, &lockpb.InspectRequest{Name: "n"},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b, i%2 == 0)
		f.Add(byte(i), []byte(nil), true)
	}
	f.Fuzz(func(t *testing.T, method byte, b []byte, configured bool) {
		s := &Server{}
		if configured {
			s.backend = echo{}
		}
		switch method % 12 {
		case 0:
			serve(t, s.TryAcquire, b, &lockpb.Request{})
		case 1:
			serve(t, s.Renew, b, &lockpb.Request{})
		case 2:
			serve(t, s.Release, b, &lockpb.Request{})
		case 3:
			serve(t, s.Proclaim, b, &lockpb.Request{})
		case 4:
			serve(t, s.Inspect, b, &lockpb.InspectRequest{})
		case 5:
			serve(t, s.Wait, b, &lockpb.WaitRequest{})
		case 6:
			serve(t, s.Break, b, &lockpb.BreakRequest{})
		case 7:
			serve(t, s.Batch, b, &lockpb.BatchRequest{})
		case 8:
			serveStream(t, s.List, b, &lockpb.ListRequest{})
		case 9:
			serveStream(t, s.Observe, b, &lockpb.InspectRequest{})
		case 10:
			serve(t, s.Check, b, &lockpb.CheckRequest{})
		case 11:
			serveStream(t, s.Notify, b, &lockpb.InspectRequest{})
		}
	})
}

func serve[Q, A proto.Message](t *testing.T, method func(context.Context, Q) (A, error), b []byte, m Q) {
	t.Helper()
	if proto.Unmarshal(b, m) != nil {
		return
	}
	reply, err := method(t.Context(), m)
	if err != nil {
		t.Errorf("%v: %v", m, err)
	}
	sendable(t, reply)
}

func serveStream[Q proto.Message, A any](t *testing.T, method func(Q, grpc.ServerStreamingServer[A]) error, b []byte, m Q) {
	t.Helper()
	if proto.Unmarshal(b, m) != nil {
		return
	}
	out := &outlet[A]{t: t}
	if err := method(m, out); err != nil || out.sent == 0 {
		t.Errorf("%v: %d messages, %v", m, out.sent, err)
	}
}

// canned is a connection on which every reply and every stream message has the same bytes.
type canned struct {
	grpc.ClientStream
	reply []byte
	left  int // messages left in the stream
}

func (c *canned) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	return proto.Unmarshal(c.reply, reply.(proto.Message))
}

func (c *canned) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return c, nil
}

func (c *canned) SendMsg(any) error { return nil }
func (c *canned) CloseSend() error  { return nil }

func (c *canned) RecvMsg(m any) error {
	if c.left--; c.left < 0 {
		return io.EOF
	}
	return proto.Unmarshal(c.reply, m.(proto.Message))
}

// FuzzUnary plays a plugin that sends arbitrary messages. It checks that the host's call returns.
// If the answer to an acquire cannot be read, the acquire's outcome must be unknown.
func FuzzUnary(f *testing.F) {
	h := FromHolder(driver.Holder{Name: "n\xff", Owner: "o", TTL: -1})
	lost := fromNotice(driver.Notice{Kind: driver.NoticeLost, Name: "n", Err: driver.ErrNotHeld}, nil)
	for i, m := range []proto.Message{
		&lockpb.GrantReply{Token: 1}, &lockpb.Reply{Error: EncodeError(&driver.HeldError{Holder: ToHolder(h)}, nil)},
		&lockpb.InspectReply{Holder: h}, &lockpb.BatchReply{Results: []*lockpb.GrantReply{{Token: 1}, {Error: &lockpb.Error{}}}},
		&lockpb.CheckReply{Properties: &lockpb.Properties{Name: "n"}}, &lockpb.InspectReply{Holder: h}, &lockpb.WatchReply{Notice: lost},
		&lockpb.ConfigureReply{Properties: &lockpb.Properties{Name: "n"}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(i), b)
		f.Add(byte(i), []byte{0xff})
		f.Add(byte(i), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, method byte, b []byte) {
		u := NewUnary(&canned{reply: b, left: 3})
		ctx, r := t.Context(), driver.Request{Name: "n", Owner: "o"}
		granted := func(token uint64, err error) {
			unread := proto.Unmarshal(b, &lockpb.GrantReply{}) != nil
			if unread && (!errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotSent)) {
				t.Errorf("%x: granted %d, %v", b, token, err)
			}
		}
		switch method % 8 {
		case 0:
			granted(u.TryAcquire(ctx, r))
		case 1:
			_, _, _, _ = u.Renew(ctx, r), u.Release(ctx, r), u.Withdraw(ctx, r.Name, r.Owner), u.Proclaim(ctx, r)
			_, _ = u.Wait(ctx, r, time.Second)
		case 2:
			_, _ = u.Inspect(ctx, "n")
		case 3:
			if results := u.Batch(ctx, make([]driver.Op, 2)); len(results) != 2 {
				t.Errorf("%x: %d results", b, len(results))
			}
		case 4:
			_, _ = u.Check(ctx)
		case 5:
			ended(t, u.Observe(ctx, "n", func(driver.Holder) {}))
			ended(t, u.Notify(ctx, "n", func() {}))
			_ = u.List(ctx, "", func(driver.Holder) bool { return true })
		case 6:
			ended(t, u.Watch(ctx, func(driver.Notice) {}))
		case 7:
			_, _ = u.Configure(ctx, Setup{})
		}
	})
}

// Only the caller may end the stream, so ended fails the test if err is nil.
func ended(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Error("the stream ends without a reason")
	}
}
