package kit_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

// TestTLSKeys checks that every backend opens with each of its TLS keys. A backend must refuse a
// configuration in which one key turns TLS off and another key needs TLS. It must also refuse a
// password together with a password file. The error must name both keys.
func TestTLSKeys(t *testing.T) {
	f := newFiles(t)
	ca, cert, key, password := f.path("ca.pem"), f.path("client.pem"), f.path("client.key"), f.path("password")
	address := map[string]string{
		"redis": "127.0.0.1:1", "redlock": "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", "mysql": "u@tcp(127.0.0.1:1)/app",
		"postgres": "postgres://u@127.0.0.1:1/app", "etcd": "127.0.0.1:1",
	}
	for _, s := range specs()[:5] {
		open := func(cfg driver.Config) error {
			cfg["address"] = address[s.Name]
			full, err := s.CheckConfig(cfg)
			if err != nil {
				return err
			}
			b, err := s.Open(t.Context(), full, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			return b.Close(t.Context())
		}
		for _, tc := range []struct {
			cfg  driver.Config
			says []string // nil when the backend opens
		}{
			{driver.Config{"tls_enabled": "true"}, nil},
			{driver.Config{"tls_enabled": "false"}, nil},
			{driver.Config{"tls_ca_file": ca}, nil},
			{driver.Config{"tls_server_name": "x.test"}, nil},
			{driver.Config{"tls_insecure": "true"}, nil},
			{driver.Config{"tls_cert_file": cert, "tls_key_file": key}, nil},
			{driver.Config{"tls_cert_file": cert}, []string{"tls_cert_file", "tls_key_file"}},
			{driver.Config{"tls_enabled": "false", "tls_ca_file": ca}, []string{"tls_enabled=false", "tls_ca_file"}},
			{driver.Config{"tls_enabled": "false", "tls_server_name": "x"}, []string{"tls_enabled=false", "tls_server_name"}},
			{driver.Config{"tls_enabled": "false", "tls_insecure": "true"}, []string{"tls_enabled=false", "tls_insecure"}},
			{driver.Config{"tls_ca_file": "/nonexistent/ca.pem"}, []string{"tls_ca_file", "/nonexistent/ca.pem"}},
			{driver.Config{"tls_ca_file": password}, []string{"tls_ca_file", password}},
			{driver.Config{"username": "u", "password_file": password}, nil},
			{driver.Config{"username": "u", "password_file": "/nonexistent/password"}, []string{"password_file", "/nonexistent/password"}},
			{driver.Config{"username": "u", "password": "p", "password_file": password}, []string{"password", "password_file"}},
			{driver.Config{"request_timeout": "-1s"}, []string{"request_timeout", "-1s"}},
			{driver.Config{"dial_timeout": "1h"}, []string{"dial_timeout", "1h"}},
			{driver.Config{"read_timeout": "1s"}, []string{"read_timeout"}},
		} {
			err := open(tc.cfg)
			delete(tc.cfg, "address")
			if tc.says == nil {
				if err != nil {
					t.Errorf("%s: %v: %v", s.Name, tc.cfg, err)
				}
				continue
			}
			if !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%s: %v: %v", s.Name, tc.cfg, err)
				continue
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), f.password) {
					t.Errorf("%s: %v: %v", s.Name, tc.cfg, err)
				}
			}
		}
	}
}
