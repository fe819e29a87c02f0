package config

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/lockbench/lockbench/core/driver"
)

// Source reads the password, the certificate and the authorities from their files for each new
// connection. An administrator cannot replace several files at the same instant. So if a file
// cannot be read, or certificate and key do not match, the last good values stay in use. The next
// connection reads the file again.
type Source struct {
	connect  Connect
	secure   bool
	log      *slog.Logger
	password lastGood[string]
	pair     lastGood[*tls.Certificate]
	roots    lastGood[*x509.CertPool]
}

// NewSource reads the files of c for the first time. The parameter secure is true if the address
// asks for TLS. The error wraps driver.ErrConfig, and names the configuration key and the file.
func NewSource(c Connect, secure bool, log *slog.Logger) (*Source, error) {
	if err := c.check(secure); err != nil {
		return nil, err
	}
	s := &Source{connect: c, secure: secure || c.Secure(), log: cmp.Or(log, slog.Default())}
	s.password.read = func() (string, error) { return readPassword(c) }
	s.pair.read = func() (*tls.Certificate, error) { return readPair(c) }
	s.roots.read = func() (*x509.CertPool, error) { return readRoots(c) }
	if err := errors.Join(s.password.open(), s.pair.open(), s.roots.open()); err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	return s, nil
}

// Secure reports whether connections use TLS.
func (s *Source) Secure() bool { return s.secure }

// Password returns the password for a new connection, or "" if there is none.
func (s *Source) Password() string { return s.password.get(s.log) }

// TLSConfig returns the TLS configuration for a new connection to host, or nil without TLS.
func (s *Source) TLSConfig(host string) *tls.Config {
	c := s.connect
	switch {
	case !s.secure:
		return nil
	case c.TLS != nil:
		own := c.TLS.Clone()
		own.ServerName = cmp.Or(own.ServerName, host)
		return own
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: cmp.Or(c.TLSServerName, host),
		InsecureSkipVerify: c.TLSInsecure, RootCAs: s.roots.get(s.log),
	}
	if c.TLSCertFile != "" {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return s.pair.get(s.log), nil
		}
	}
	return cfg
}

// LastingTLSConfig is like TLSConfig, for a client library that uses one configuration for all
// connections. The parameter hosts lists the hosts that the library connects to.
//
// Package tls reads the authorities of a configuration only once, and would never use renewed
// authorities. So this configuration verifies the server's certificate itself, with the present
// authorities. The certificate must have the name that the client asked for. If the client connects
// to an IP address, it asks for no name. The certificate must then be for one of the hosts.
func (s *Source) LastingTLSConfig(hosts []string) *tls.Config {
	cfg := s.TLSConfig("")
	if cfg == nil || cfg.InsecureSkipVerify || s.connect.TLSCAFile == "" {
		return cfg
	}
	if cfg.ServerName != "" {
		hosts = []string{cfg.ServerName}
	}
	cfg.RootCAs, cfg.InsecureSkipVerify = nil, true
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		names := hosts
		if state.ServerName != "" {
			names = []string{state.ServerName}
		}
		return verify(state.PeerCertificates, s.roots.get(s.log), names)
	}
	return cfg
}

func verify(chain []*x509.Certificate, roots *x509.CertPool, names []string) error {
	err := errors.New("x509: no certificate, or no name to compare it with")
	for _, name := range names {
		if len(chain) == 0 {
			break
		}
		opts := x509.VerifyOptions{Roots: roots, DNSName: name, Intermediates: x509.NewCertPool()}
		for _, c := range chain[1:] {
			opts.Intermediates.AddCert(c)
		}
		if _, err = chain[0].Verify(opts); err == nil {
			return nil
		}
	}
	return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
}

// Stale returns why a file's present contents are not in use, or nil if all contents are in use.
func (s *Source) Stale() error {
	return errors.Join(s.password.failed(), s.pair.failed(), s.roots.failed())
}

type lastGood[T any] struct {
	read func() (T, error)

	mu   sync.Mutex
	last T
	err  error // error of the latest read
}

func (k *lastGood[T]) get(log *slog.Logger) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	value, err := k.read()
	switch {
	case err == nil:
		k.last = value
	case k.err == nil:
		log.Warn("the last good text stays in use", "err", err)
	}
	k.err = err
	return k.last
}

func (k *lastGood[T]) open() (err error) {
	k.last, err = k.read()
	return err
}

func (k *lastGood[T]) failed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

func readPassword(c Connect) (string, error) {
	if c.PasswordFile == "" {
		return c.Password, nil
	}
	text, err := os.ReadFile(c.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("password_file: %w", err)
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("password_file: %s is empty", c.PasswordFile)
	}
	return password, nil
}

func readPair(c Connect) (*tls.Certificate, error) {
	if c.TLSCertFile == "" {
		return nil, nil
	}
	cert, err := readPEM(c.TLSCertFile)
	if err != nil {
		return nil, fmt.Errorf("tls_cert_file: %w", err)
	}
	key, err := readPEM(c.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("tls_key_file: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls_cert_file %s and tls_key_file %s: %w", c.TLSCertFile, c.TLSKeyFile, err)
	}
	return &pair, nil
}

func readRoots(c Connect) (*x509.CertPool, error) {
	if c.TLSCAFile == "" {
		return nil, nil
	}
	text, err := readPEM(c.TLSCAFile)
	if err != nil {
		return nil, fmt.Errorf("tls_ca_file: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("tls_ca_file: %s has no certificate in PEM form", c.TLSCAFile)
	}
	return pool, nil
}

// readPEM returns an error if the file ends within a PEM block, because another process may still
// be writing the file.
func readPEM(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rest := text
	for block, more := pem.Decode(rest); block != nil; block, more = pem.Decode(rest) {
		rest = more
	}
	if bytes.Contains(rest, []byte("-----BEGIN")) {
		return nil, fmt.Errorf("%s ends within a PEM block", file)
	}
	return text, nil
}

// Dial connects to addr, with TLS if the configuration says so. The parameter server is the name of
// the server's product, for use in errors. If ctx ends during the handshake, Dial returns only
// after it has closed the connection. An error of the handshake wraps driver.ErrNotSent, and
// driver.ErrDenied or driver.ErrUnavailable.
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
		return fmt.Errorf("%w (the last good text stays in use: %w)", explained, stale)
	}
	return explained
}
