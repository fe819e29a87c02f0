package config_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/internal/configtest"
)

// secured returns options with a password and TLS.
func secured(t *testing.T) (config.Connect, *configtest.Authority) {
	dir, a := t.TempDir(), configtest.NewAuthority(t)
	ca, password := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "password")
	configtest.Write(t, ca, a.PEM)
	configtest.Write(t, password, []byte("first-secret\n"))
	cert, key := a.Issue(t, dir, "client", time.Now().Add(time.Hour))
	return config.Connect{
		PasswordFile: password, TLSCAFile: ca, TLSCertFile: cert, TLSKeyFile: key, DialTimeout: time.Second, RequestTimeout: time.Second,
	}, a
}

func certificate(t *testing.T, s *config.Source) string {
	t.Helper()
	cert, err := s.TLSConfig("localhost").GetClientCertificate(nil)
	must(t, err)
	return string(cert.Certificate[0])
}

// While a file cannot be used, the last good values stay in use, and the log names the file. After
// the file is repaired, its new contents are in use.
func TestHalfWrittenFiles(t *testing.T) {
	cases := map[string]struct {
		harm func(t *testing.T, c config.Connect)
		says string
	}{
		"no password":         {func(t *testing.T, c config.Connect) { must(t, os.Remove(c.PasswordFile)) }, "password_file: open "},
		"an empty password":   {func(t *testing.T, c config.Connect) { configtest.Write(t, c.PasswordFile, []byte("\n")) }, "is empty"},
		"no certificate":      {func(t *testing.T, c config.Connect) { must(t, os.Remove(c.TLSCertFile)) }, "tls_cert_file: open "},
		"a key cut off":       {func(t *testing.T, c config.Connect) { cut(t, c.TLSKeyFile) }, "ends within a PEM block"},
		"another's key":       {func(t *testing.T, c config.Connect) { anothersKey(t, c) }, "tls_key_file"},
		"authorities cut off": {func(t *testing.T, c config.Connect) { cut(t, c.TLSCAFile) }, "tls_ca_file: "},
		"no authority":        {func(t *testing.T, c config.Connect) { configtest.Write(t, c.TLSCAFile, nil) }, "has no certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, a := secured(t)
			var log strings.Builder
			s, err := config.NewSource(c, false, slog.New(slog.NewTextHandler(&log, nil)))
			must(t, err)
			before := certificate(t, s)
			tc.harm(t, c)
			for range 3 {
				if certificate(t, s) != before || s.Password() != "first-secret" || s.TLSConfig("").RootCAs == nil {
					t.Error("what was read before is not in use")
				}
			}
			if stale := s.Stale(); stale == nil || !strings.Contains(stale.Error(), tc.says) {
				t.Errorf("%v does not say %q", stale, tc.says)
			}
			if n := strings.Count(log.String(), "level=WARN"); n != 1 || strings.Contains(log.String(), "secret") {
				t.Errorf("%d warnings: %s", n, log.String())
			}
			if _, err := config.NewSource(c, false, nil); !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("a new process: %v", err)
			}
			configtest.Write(t, c.PasswordFile, []byte("second-secret\r\n"))
			configtest.Write(t, c.TLSCAFile, a.PEM)
			a.Issue(t, filepath.Dir(c.TLSCertFile), "client", time.Now().Add(time.Hour))
			if certificate(t, s) == before || s.Password() != "second-secret" || s.TLSConfig("").RootCAs == nil || s.Stale() != nil {
				t.Errorf("whole files are not in use: %v", s.Stale())
			}
		})
	}
}

func cut(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	must(t, err)
	configtest.Write(t, path, text[:len(text)/2])
}

func anothersKey(t *testing.T, c config.Connect) {
	_, key := configtest.NewAuthority(t).Issue(t, t.TempDir(), "other", time.Now().Add(time.Hour))
	text, err := os.ReadFile(key)
	must(t, err)
	configtest.Write(t, c.TLSKeyFile, text)
}

// A TLS configuration that is made once must verify each server with the current authorities.
func TestLastingTLSConfig(t *testing.T) {
	c, a := secured(t)
	c.TLSCertFile, c.TLSKeyFile = "", ""
	at := server(t, a)
	for name, tc := range map[string]struct {
		change func(c *config.Connect)
		hosts  []string
		asked  string // the name that the client asks for
		says   string // part of the error, or "" if the connection must succeed
	}{
		"its address":             {nil, []string{"127.0.0.1"}, "127.0.0.1", ""},
		"one of the addresses":    {nil, []string{"10.0.0.1", "127.0.0.1"}, "127.0.0.1", ""},
		"its name":                {nil, []string{"elsewhere"}, "server.test", ""},
		"another address":         {nil, []string{"10.0.0.1"}, "10.0.0.1", "x509"},
		"another name":            {nil, []string{"127.0.0.1"}, "other.test", "x509"},
		"no host at all":          {nil, nil, "127.0.0.1", "x509"},
		"the name that is set":    {func(c *config.Connect) { c.TLSServerName = "server.test" }, []string{"other.test"}, "", ""},
		"another name is set":     {func(c *config.Connect) { c.TLSServerName = "10.0.0.1" }, []string{"127.0.0.1"}, "", "x509"},
		"authority of the system": {func(c *config.Connect) { c.TLSCAFile, c.TLSEnabled = "", new(true) }, []string{"127.0.0.1"}, "127.0.0.1", "x509"},
		"any is good":             {func(c *config.Connect) { c.TLSInsecure = true }, []string{"10.0.0.1"}, "10.0.0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			own := c
			if tc.change != nil {
				tc.change(&own)
			}
			s, err := config.NewSource(own, false, nil)
			must(t, err)
			cfg := s.LastingTLSConfig(tc.hosts).Clone()
			if cfg.ServerName == "" {
				cfg.ServerName = tc.asked
			}
			err = connect(at, cfg)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %q", err, tc.says)
			}
		})
	}
	s, err := config.NewSource(c, false, nil)
	must(t, err)
	cfg := s.LastingTLSConfig([]string{"127.0.0.1"})
	cfg.ServerName = "127.0.0.1"
	other := configtest.NewAuthority(t)
	elsewhere := server(t, other)
	if err := connect(elsewhere, cfg); err == nil || !errors.Is(config.ExplainTLS(err), driver.ErrDenied) {
		t.Errorf("an authority that is not trusted: %v", err)
	}
	configtest.Write(t, c.TLSCAFile, other.PEM)
	must(t, connect(elsewhere, cfg))
	if err := connect(at, cfg); err == nil {
		t.Error("an authority that is trusted no more is")
	}
}

func server(t *testing.T, a *configtest.Authority) string {
	cert, key := a.Issue(t, t.TempDir(), "server", time.Now().Add(time.Hour))
	pair, err := tls.LoadX509KeyPair(cert, key)
	must(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	go func() { // ends when the listener l is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*tls.Conn).Handshake()
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func connect(addr string, cfg *tls.Config) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return tls.Client(c, cfg).Handshake()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
