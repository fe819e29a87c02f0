package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
)

// Relay passes on what is said to the server at addr and what that answers, until
// the test ends. It calls answered, from many goroutines, when the first answer to
// a request has come; an error of it goes to the client instead of that answer.
func Relay(t testing.TB, addr string, answered func(method string, request []byte) error) (relay string) {
	t.Helper()
	server, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodecV2(raw{}), grpc.UnknownServiceHandler(func(_ any, client grpc.ServerStream) error {
		return pass(client, server, answered)
	}))
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(func() {
		s.Stop()
		_ = server.Close()
	})
	return l.Addr().String()
}

// pass relays one request, or stream.
func pass(client grpc.ServerStream, server *grpc.ClientConn, answered func(string, []byte) error) error {
	method, _ := grpc.MethodFromServerStream(client)
	sent, _ := metadata.FromIncomingContext(client.Context())
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(client.Context(), sent))
	defer cancel()
	var request []byte
	if err := client.RecvMsg(&request); err != nil {
		return err
	}
	upstream, err := server.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = upstream.CloseSend() }()
		for m := request; upstream.SendMsg(&m) == nil; {
			if client.RecvMsg(&m) != nil {
				return
			}
		}
	}()
	for first := true; ; first = false {
		var answer []byte
		if err := upstream.RecvMsg(&answer); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if first {
			if err := answered(method, request); err != nil {
				return err
			}
		}
		if err := client.SendMsg(&answer); err != nil {
			return err
		}
	}
}

// raw leaves messages as they are.
type raw struct{}

func (raw) Name() string { return "raw" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("a %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*b)}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
