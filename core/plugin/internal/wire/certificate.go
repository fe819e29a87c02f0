package wire

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

// EnvClientCert is go-plugin's environment variable in which a host passes its certificate to a
// plugin, in PEM. If this variable is not set, there is no mutual TLS.
const EnvClientCert = "PLUGIN_CLIENT_CERT"

// serverName is the host name in the certificates of host and plugin.
const serverName = "localhost"

// Certificate is the identity of one end of a connection. Its key pair
// was made for that end alone. The other end trusts no other certificate.
//
// Note: go-plugin's AutoMTLS makes such key pairs too, but on the curve P-521. Go has no assembly
// for that curve, so making the keys would take more than half of the time of a plugin's start.
type Certificate struct{ pair tls.Certificate }

// NewCertificate makes a key pair on P-256.
func NewCertificate() (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject:      pkix.Name{CommonName: serverName},
		DNSNames:     []string{serverName},
		SerialNumber: serial,
		// The machine's clock may be set back, so the certificate must also be valid
		// for earlier times. It must be valid for as long as the process lives.
		NotBefore:             now.AddDate(-1, 0, 0),
		NotAfter:              now.AddDate(30, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &Certificate{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// DER returns the certificate without its key.
func (c *Certificate) DER() []byte { return c.pair.Certificate[0] }

// PEM returns the certificate without its key, as text.
func (c *Certificate) PEM() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.DER()}))
}

// Client returns the TLS configuration of the end that connects. The caller
// must set RootCAs to the other end's certificate.
func (c *Certificate) Client() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{c.pair}, MinVersion: tls.VersionTLS12, ServerName: serverName}
}

// Server returns the TLS configuration of the end that accepts connections.
// It accepts only a client that has the key of the certificate clientPEM.
func (c *Certificate) Server(clientPEM string) (*tls.Config, error) {
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM([]byte(clientPEM)) {
		return nil, fmt.Errorf("certificate: %s holds no certificate", EnvClientCert)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{c.pair}, MinVersion: tls.VersionTLS12,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
	}, nil
}
