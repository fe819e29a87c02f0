package wire

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
)

// shake connects two ends by TLS. The TLS client uses the client certificate and trusts only the
// server certificate. The TLS server trusts only the certificate in trusted.
func shake(t *testing.T, client, server, trusted *Certificate) error {
	t.Helper()
	accepts, err := server.Server(trusted.PEM())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(server.DER())
	if err != nil {
		t.Fatal(err)
	}
	connects := client.Client()
	connects.RootCAs = x509.NewCertPool()
	connects.RootCAs.AddCert(parsed)
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		_ = tls.Client(far, connects).Handshake() // shake returns the error of the other end
	}()
	return tls.Server(near, accepts).Handshake()
}

func TestCertificateIsForOneConnection(t *testing.T) {
	var made [3]*Certificate
	for i := range made {
		c, err := NewCertificate()
		if err != nil {
			t.Fatal(err)
		}
		made[i] = c
	}
	host, plugin, stranger := made[0], made[1], made[2]
	if err := shake(t, host, plugin, host); err != nil {
		t.Errorf("host and plugin: %v", err)
	}
	if err := shake(t, stranger, plugin, host); err == nil {
		t.Error("the plugin takes a stranger for its host")
	}
	if _, err := plugin.Server("no certificate"); err == nil {
		t.Error("a host without a certificate is accepted")
	}
}
