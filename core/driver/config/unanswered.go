package config

import (
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// ExplainTLS uses the first entry of refusals whose text occurs in the error.
var refusals = []struct{ text, advice string }{
	{"remote error: tls: certificate required", "the server asks for a client certificate: set tls_cert_file and tls_key_file"},
	{"remote error: tls: expired certificate", "the server says that the certificate in tls_cert_file has expired"},
	{"remote error: tls: unknown certificate authority", "the server does not know the authority that signed the certificate in tls_cert_file"},
	{"remote error: tls: revoked certificate", "the server says that the certificate in tls_cert_file is revoked"},
	{"remote error: tls: bad certificate", "the server refuses the client's certificate, or requires one: see tls_cert_file and tls_key_file"},
	{"remote error: tls: unknown certificate", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: unsupported certificate", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: access denied", "the server refuses the client's certificate: see tls_cert_file"},
	{"remote error: tls: handshake failure", "the server accepts no TLS setting of this client, or requires a client certificate: see tls_cert_file and tls_key_file"},
	{"remote error: tls: protocol version not supported", "the server has no version of TLS in common with this client, which wants 1.2 or later"},
	{"remote error: tls: unrecognized name", "the server does not know the name that it is asked by: see tls_server_name"},
	{"tls: server selected unsupported protocol version", "the server has no version of TLS in common with this client, which wants 1.2 or later"},
	{"signed by unknown authority", "tls_ca_file has to have the authority that signed the server's certificate"},
	{"x509: certificate has expired", "the server's certificate has expired, or one of the clocks is wrong"},
	{"x509: ", "the server's certificate does not fit: see tls_ca_file and tls_server_name"},
}

const noTLS = "tls: first record does not look like a TLS handshake"

// ExplainTLS returns an error that tells an administrator why TLS made a connection fail with err.
// It returns nil if TLS is not the reason. The error wraps err and driver.ErrNotSent. It also wraps
// driver.ErrUnavailable if another server may listen at the address later; otherwise it wraps
// driver.ErrDenied. ExplainTLS compares texts, because TLS alerts have no exported type, and some
// client libraries keep only the text.
func ExplainTLS(err error) error {
	text := err.Error()
	for _, r := range refusals {
		if strings.Contains(text, r.text) {
			return fmt.Errorf("%w: %w: %s: %w", driver.ErrDenied, driver.ErrNotSent, r.advice, err)
		}
	}
	if strings.Contains(text, noTLS) {
		return fmt.Errorf("%w: %w: what listens there does not speak TLS: check the address, or turn TLS off: %w",
			driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return nil
}

// WhatToCheck is advice for an administrator whose server does not answer.
const WhatToCheck = "check the address, whether the server is up and takes more clients, and what both ends say of TLS (tls_enabled, tls_cert_file)"

// Unanswered returns the error for a connection that failed with err before any request was sent,
// because the server did not answer in its protocol. The parameter server names the product, for
// use in the error. Unanswered returns the error of [ExplainTLS] if that is not nil. Otherwise the
// error wraps driver.ErrUnavailable, driver.ErrNotSent and err.
func Unanswered(server string, err error) error {
	if explained := ExplainTLS(err); explained != nil {
		return explained
	}
	return fmt.Errorf("%w: %w: no %s answers there: %s: %w", driver.ErrUnavailable, driver.ErrNotSent, server, WhatToCheck, err)
}
