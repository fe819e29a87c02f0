package wire

import (
	"context"

	"google.golang.org/grpc"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// Session serves the stream of heartbeats. It sends each heartbeat of the host back at once.
func (s *Server) Session(stream grpc.BidiStreamingServer[lockpb.Heartbeat, lockpb.Heartbeat]) error {
	broken := make(chan error, 1)
	ended := s.host.SessionBegan()
	go func() {
		defer ended()
		for {
			m, err := stream.Recv()
			if err == nil {
				err = stream.Send(m)
			}
			if err != nil {
				broken <- err
				return
			}
		}
	}()
	// When Session returns, gRPC ends the stream, and the Recv in the goroutine above fails.
	select {
	case err := <-broken:
		return err
	case <-s.done:
		return nil
	}
}

// Observe implements the protocol.
func (s *Server) Observe(m *lockpb.InspectRequest, stream grpc.ServerStreamingServer[lockpb.InspectReply]) error {
	ctx, cancel := s.untilDone(stream.Context())
	defer cancel()
	err := driver.ObserverOf(s.open()).Observe(ctx, m.Name, func(h driver.Holder) {
		if stream.Send(&lockpb.InspectReply{Holder: FromHolder(h)}) != nil {
			cancel()
		}
	})
	if err == nil {
		return nil
	}
	return stream.Send(&lockpb.InspectReply{Error: s.encode(err)})
}

// Notify implements the protocol.
func (s *Server) Notify(m *lockpb.InspectRequest, stream grpc.ServerStreamingServer[lockpb.Reply]) error {
	n := driver.NotifierOf(s.open())
	if n == nil {
		return stream.Send(&lockpb.Reply{Error: s.encode(driver.ErrUnsupported)})
	}
	ctx, cancel := s.untilDone(stream.Context())
	defer cancel()
	err := n.Notify(ctx, m.Name, func() {
		if stream.Send(&lockpb.Reply{}) != nil {
			cancel()
		}
	})
	if err == nil {
		return nil
	}
	return stream.Send(&lockpb.Reply{Error: s.encode(err)})
}

// Watch implements the protocol.
func (s *Server) Watch(_ *lockpb.WatchRequest, stream grpc.ServerStreamingServer[lockpb.WatchReply]) error {
	w := driver.WatcherOf(s.open())
	if w == nil {
		return stream.Send(&lockpb.WatchReply{Error: s.encode(driver.ErrUnsupported)})
	}
	ctx, cancel := s.untilDone(stream.Context())
	defer cancel()
	err := w.Watch(ctx, func(n driver.Notice) {
		if stream.Send(&lockpb.WatchReply{Notice: fromNotice(n, s.redact)}) != nil {
			cancel()
		}
	})
	if err == nil {
		return nil
	}
	return stream.Send(&lockpb.WatchReply{Error: s.encode(err)})
}

// List implements the protocol.
func (s *Server) List(m *lockpb.ListRequest, stream grpc.ServerStreamingServer[lockpb.InspectReply]) error {
	a := driver.AdminOf(s.open())
	if a == nil {
		return stream.Send(&lockpb.InspectReply{Error: s.encode(driver.ErrUnsupported)})
	}
	err := a.List(stream.Context(), string(m.Prefix), func(h driver.Holder) bool {
		return stream.Send(&lockpb.InspectReply{Holder: FromHolder(h)}) == nil
	})
	if err == nil {
		return nil
	}
	return stream.Send(&lockpb.InspectReply{Error: s.encode(err)})
}

func (s *Server) untilDone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
