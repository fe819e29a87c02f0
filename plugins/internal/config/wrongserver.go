package config

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// protocols are known by what a server says first.
var protocols = []struct {
	what string
	is   func(first []byte) bool
}{
	{"TLS", func(b []byte) bool { return len(b) > 1 && (b[0] == 0x15 || b[0] == 0x16) && b[1] == 3 }},
	{MySQL, func(b []byte) bool { return len(b) > 4 && b[3] == 0 && (b[4] == 10 || b[4] == 0xff) }},
	{Etcd, func(b []byte) bool { return len(b) > 4 && b[0] == 0 && b[1] == 0 && b[3] == 4 && b[4] == 0 }},
	{HTTP, func(b []byte) bool { return bytes.HasPrefix(b, []byte("HTTP/")) }},
	{"SSH", func(b []byte) bool { return bytes.HasPrefix(b, []byte("SSH-")) }},
	{Redis, func(b []byte) bool {
		return len(b) > 1 && (b[0] == '-' && b[1] >= 'A' && b[1] <= 'Z' || bytes.HasPrefix(b, []byte("+PONG")))
	}},
}

// What [Speaks] calls the protocols of backends.
const (
	Redis = "the protocol of Redis"
	MySQL = "MySQL's protocol"
	Etcd  = "HTTP/2, as etcd does"
	HTTP  = "HTTP, as web servers and proxies do"
)

// Speaks names the protocol of a server by the first bytes that came from it,
// "" when it is none of those known.
func Speaks(first []byte) string {
	for _, p := range protocols {
		if p.is(first) {
			return p.what
		}
	}
	return ""
}

// Stranger is the error of a connection to a server that speaks something else
// than is wanted. Nothing was executed.
func Stranger(speaks, wanted string) error {
	advice := "check the address"
	if speaks == "TLS" {
		advice = "turn TLS on: see tls_enabled and tls_ca_file"
	}
	return fmt.Errorf("%w: %w: what listens there speaks %s, and not %s: %s", driver.ErrUnavailable, driver.ErrNotSent, speaks, wanted, advice)
}

// refusals are what package tls says, here and at the other end, about
// certificates; the first one that fits counts.
var refusals = []struct{ text, advice string }{
	{"remote error: tls: certificate required", "the server asks for a client certificate: set tls_cert_file and tls_key_file"},
	{"remote error: tls: expired certificate", "the server says that the certificate in tls_cert_file has expired"},
	{"remote error: tls: unknown certificate authority", "the server does not know the authority that signed the certificate in tls_cert_file"},
	{"remote error: tls: revoked certificate", "the server says that the certificate in tls_cert_file is revoked"},
	{"remote error: tls: bad certificate", "the server refuses the client's certificate, or misses it: see tls_cert_file and tls_key_file"},
	{"remote error: tls: unknown certificate", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: unsupported certificate", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: access denied", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: handshake failure", "the server finds no common ground, or misses a client certificate: see tls_cert_file and tls_key_file"},
	{"remote error: tls: protocol version not supported", "the server has no version of TLS in common with this client, which wants 1.2 or later"},
	{"remote error: tls: unrecognized name", "the server does not know the name that it is asked by: see tls_server_name"},
	{"tls: server selected unsupported protocol version", "the server has no version of TLS in common with this client, which wants 1.2 or later"},
	{"signed by unknown authority", "tls_ca_file has to have the authority that signed the server's certificate"},
	{"x509: certificate has expired", "the server's certificate has expired, or one of the clocks is wrong"},
	{"x509: ", "the server's certificate does not fit: see tls_ca_file and tls_server_name"},
}

const noTLS = "tls: first record does not look like a TLS handshake"

// ExplainTLS returns what the failure of a connection means for whoever has
// configured it, when TLS is the reason: an error wrapping driver.ErrDenied,
// or driver.ErrUnavailable where something else may listen there tomorrow,
// and always driver.ErrNotSent and err. Else it returns nil.
//
// It goes by texts, because alerts have no exported type, and some clients
// keep nothing but the text.
func ExplainTLS(err error) error {
	text := err.Error()
	for _, r := range refusals {
		if strings.Contains(text, r.text) {
			return fmt.Errorf("%w: %w: %s: %w", driver.ErrDenied, driver.ErrNotSent, r.advice, err)
		}
	}
	if !strings.Contains(text, noTLS) {
		return nil
	}
	speaks := "plain text"
	var header tls.RecordHeaderError
	if errors.As(err, &header) {
		if what := Speaks(header.RecordHeader[:]); what != "" {
			speaks = what
		}
	}
	return fmt.Errorf("%w: %w: what listens there speaks %s, and not TLS: check the address, or turn TLS off: %w",
		driver.ErrUnavailable, driver.ErrNotSent, speaks, err)
}
