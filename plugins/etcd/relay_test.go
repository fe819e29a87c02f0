package etcd

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

// relayTo starts a relay to the server at addr. The relay runs until the test ends. It calls the
// function answered, from many goroutines, at the first answer to each request. If that function
// returns an error, the client gets the error in place of the answer.
func relayTo(t testing.TB, addr string, answered func(method string, request []byte) error) (relay string) {
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

// balancer passes each new connection to the next of the servers at addrs, until the test ends.
func balancer(t testing.TB, addrs ...string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for i := 0; ; i++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go forward(client, addrs[i%len(addrs)])
		}
	}()
	return l.Addr().String()
}

func forward(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	}()
	_, _ = io.Copy(server, client)
}

// raw is a grpc codec that passes on the bytes of messages unchanged.
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
