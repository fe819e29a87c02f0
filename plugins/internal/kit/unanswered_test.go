package kit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
)

// others has servers of other kinds, which may listen at the address of a backend's store.
var others = map[string]func(net.Conn){
	"silent":       func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
	"ends at once": func(net.Conn) {},
	"speaks first": func(c net.Conn) { _, _ = io.WriteString(c, "220 smtp.example.com\r\n"); _, _ = io.Copy(io.Discard, c) },
	"answers in HTTP": func(c net.Conn) {
		_, _ = c.Read(make([]byte, 64))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
	},
	"answers in TLS": func(c net.Conn) { _, _ = c.Read(make([]byte, 64)); _, _ = c.Write([]byte{0x15, 3, 1, 0, 2, 2, 10}) },
}

// TestNoStoreAnswers checks the errors when another kind of server listens at the store's address.
// TryAcquire must report that nothing was executed. The error of Check must say that no store
// answers, and ask the user to check the address.
func TestNoStoreAnswers(t *testing.T) {
	servers := map[string]string{"redis": "Redis server", "redlock": "Redis server", "mysql": "MySQL server", "postgres": "PostgreSQL server", "etcd": "etcd member"}
	f := newFiles(t)
	for name, serve := range others {
		at := listener(t, serve)
		for _, s := range specs()[:5] {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s at what %s, TLS %v", s.Name, name, secure), func(t *testing.T) {
					t.Parallel()
					cfg := driver.Config{"address": address(s.Name, at), "dial_timeout": "500ms", "request_timeout": "500ms"}
					says := "no " + servers[s.Name] + " answers there: check the address"
					if secure {
						cfg["tls_ca_file"] = f.path("ca.pem")
					}
					unanswered(t, s, cfg, says)
				})
			}
		}
	}
}

func unanswered(t *testing.T, s driver.Spec, cfg driver.Config, says string) {
	t.Helper()
	full, err := s.CheckConfig(cfg)
	must(t, err)
	b, err := s.Open(t.Context(), full, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	defer func() { must(t, b.Close(ctx)) }()
	_, err = b.TryAcquire(ctx, driver.Request{Name: "n", Owner: "o", TTL: 10 * time.Second})
	if !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) {
		t.Errorf("nothing was executed, and the error does not say so: %v", err)
	}
	text := fmt.Sprint(b.Check(ctx))
	if !strings.Contains(text, says) && !strings.Contains(text, "does not speak TLS: check the address") || strings.Contains(text, "pw-of-the-test") {
		t.Errorf("Check: %s does not say %q", text, says)
	}
}

// TestRefusedCertificates connects to servers that require a certificate: without one, with an
// expired one, and with one of another authority. The error must name the configuration key of the
// certificate.
func TestRefusedCertificates(t *testing.T) {
	for name, start := range stores {
		if name == "etcd with users" {
			continue // it requires no certificate
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			s := start(t, f)
			want := map[string]func(cfg driver.Config){
				"none":                 func(cfg driver.Config) { delete(cfg, "tls_cert_file"); delete(cfg, "tls_key_file") },
				"one that has expired": func(driver.Config) { f.client(0, time.Now().Add(-time.Minute)) },
				"a stranger's": func(driver.Config) {
					configtest.NewAuthority(t).Issue(t, f.dir, "client", time.Now().Add(time.Hour))
				},
			}
			for what, change := range want {
				cfg := maps.Clone(s.config)
				change(cfg)
				full, err := s.spec.CheckConfig(cfg)
				must(t, err)
				b, err := s.spec.Open(t.Context(), full, slog.New(slog.DiscardHandler))
				must(t, err)
				_, err = b.TryAcquire(t.Context(), driver.Request{Name: "n", Owner: "o", TTL: 10 * time.Second})
				if !errors.Is(err, driver.ErrDenied) && !errors.Is(err, driver.ErrNotSent) || !strings.Contains(fmt.Sprint(err), "tls_cert_file") {
					t.Errorf("%s: %v", what, err)
				}
				must(t, b.Close(t.Context()))
			}
		})
	}
}

func address(backend, addr string) string {
	switch backend {
	case "mysql":
		return "u:pw-of-the-test@tcp(" + addr + ")/app"
	case "postgres":
		return "postgres://u:pw-of-the-test@" + addr + "/app"
	case "redlock":
		_, port, _ := net.SplitHostPort(addr)
		return addr + ",127.0.0.2:" + port + ",127.0.0.3:" + port
	}
	return addr
}

func listener(t *testing.T, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	go func() { // ends with l
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(c)
				_ = c.Close()
			}()
		}
	}()
	return l.Addr().String()
}
