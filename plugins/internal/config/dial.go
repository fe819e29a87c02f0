package config

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
)

// Dial connects to server at addr, with TLS where the configuration says so, and with
// what stands in its files at this moment. A connection that ctx ends may stay
// half-made for as long as closing it takes. The error of a handshake wraps
// driver.ErrDenied or driver.ErrUnavailable, and driver.ErrNotSent.
func (s *Source) Dial(ctx context.Context, d *net.Dialer, server, network, addr string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(addr)
	cfg := s.TLSConfig(host)
	if cfg == nil {
		return conn, nil
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, s.handshake(server, err)
	}
	return secure, nil
}

func (s *Source) handshake(server string, err error) error {
	explained := Unanswered(server, err)
	if stale := s.Stale(); stale != nil {
		return fmt.Errorf("%w (in use is what was read before: %w)", explained, stale)
	}
	return explained
}
