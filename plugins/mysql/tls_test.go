package mysql_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql"
)

// certificate writes a self-signed certificate for 127.0.0.1 and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "lockbench test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	err = errors.Join(
		os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600),
		os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	stranger, _ := certificate(t)
	s := own(t, &env.MariaDBOptions{Args: []string{"--ssl-cert=" + cert, "--ssl-key=" + key, "--require-secure-transport=ON"}})
	check := func(cfg driver.Config) func() error {
		cfg["address"] = env.MariaDBAddress(s)
		return func() error {
			full, err := mysql.Spec.CheckConfig(cfg)
			if err != nil {
				return err
			}
			b, err := mysql.Spec.Open(t.Context(), full, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer b.Close(context.Background())
			return b.Check(t.Context())
		}
	}
	for _, cfg := range []driver.Config{{"tls_enabled": "true", "tls_ca_file": cert}, {"tls_enabled": "true", "tls_insecure": "true"}} {
		if err := check(cfg)(); err != nil {
			t.Errorf("%v: %v", cfg, err)
		}
	}
	refused(t, check(driver.Config{"tls_enabled": "true", "tls_ca_file": stranger}), driver.ErrDenied, "tls_ca_file")
	refused(t, check(driver.Config{"tls_enabled": "true", "tls_ca_file": cert, "tls_server_name": "db.example"}), driver.ErrDenied, "tls_server_name")
	refused(t, check(driver.Config{}), driver.ErrDenied, "tls_enabled=true")
}
