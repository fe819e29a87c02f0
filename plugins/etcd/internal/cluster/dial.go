package cluster

import (
	"cmp"
	"context"
	"net"
	"time"
)

// nextAddress is how long one address of a name has to be connected to before the
// next one is tried beside it, as RFC 8305 has it.
const nextAddress = 250 * time.Millisecond

// dial connects to a host:port whose host may be a name with several addresses, of
// which some may be dead. The net package tries those of one family one after
// another, each for a part of the time that is longer than a lease may have.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return dialAny(ctx, ips)
}

// dialAny connects to the first of addrs that answers. The error is that of the
// first one.
func dialAny(ctx context.Context, addrs []string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	begin := func(addr string) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		select {
		case results <- result{conn, err}:
		case <-ctx.Done(): // another one was first
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
	var failed error
	next := time.NewTimer(0)
	defer next.Stop()
	for begun, over := 0, 0; over < len(addrs); {
		select {
		case r := <-results:
			if r.err == nil {
				return r.conn, nil
			}
			failed = cmp.Or(failed, r.err)
			over++
			next.Reset(0)
		case <-next.C:
			if begun < len(addrs) {
				go begin(addrs[begun])
				begun++
				next.Reset(nextAddress)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, failed
}
