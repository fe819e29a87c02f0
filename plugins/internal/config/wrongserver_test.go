package config_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// words are what an error says about a counterpart, without TLS and with it;
// "" where the two go together.
type words struct{ plain, secure string }

var (
	noAnswer  = "want TLS, or be no server of Redis"
	noMySQL   = "what listens there is no server of MySQL"
	noEtcd    = "does not speak HTTP/2, and is no etcd"
	needsCert = "set tls_cert_file and tls_key_file"
	redises   = map[string]words{
		"nobody":       {"refused", "refused"},
		"silent":       {"no answer came", "no TLS handshake came about in time"},
		"ends at once": {noAnswer, "ended the TLS handshake"},
		"HTTP":         {"speaks HTTP", "speaks HTTP"},
		"HTTPS":        {noAnswer, "tls_ca_file has to have the authority"},
		"mysql":        {"speaks MySQL's protocol", "speaks MySQL's protocol"},
		"etcd":         {noAnswer, "ended the TLS handshake"},
		"etcd TLS":     {noAnswer, needsCert},
		"redis":        {"", "no TLS handshake came about in time"},
		"redis TLS":    {noAnswer, needsCert},
	}
	expected = map[string]map[string]words{
		"redis":   redises,
		"redlock": redises,
		"mysql": {
			"nobody":       {"refused", "refused"},
			"silent":       {noMySQL, noMySQL},
			"ends at once": {noMySQL, noMySQL},
			"HTTP":         {"speaks HTTP", "speaks HTTP"},
			"HTTPS":        {noMySQL, noMySQL},
			"mysql":        {"username and password", "turn TLS on in the server, or off here"},
			"etcd":         {noMySQL, noMySQL},
			"etcd TLS":     {noMySQL, noMySQL},
			"redis":        {"speaks the protocol of Redis", "speaks the protocol of Redis"},
			"redis TLS":    {noMySQL, noMySQL},
		},
		"etcd": {
			"nobody":       {"refused", "refused"},
			"silent":       {"no connection came about in time", "no connection came about in time"},
			"ends at once": {"backend is unavailable", "handshake failed"},
			"HTTP":         {"speaks HTTP", "plain text, and not TLS"},
			"HTTPS":        {"may want TLS, or is no etcd", noEtcd},
			"mysql":        {noEtcd, "plain text, and not TLS"},
			"etcd":         {"", "it may speak plain text"},
			"etcd TLS":     {"may want TLS, or is no etcd", needsCert},
			"redis":        {noEtcd, "no connection came about in time"},
			"redis TLS":    {"may want TLS, or is no etcd", noEtcd},
		},
	}
)

// TestCounterparts: whatever listens where a backend looks for its store, the
// error says so, and that nothing was executed.
func TestCounterparts(t *testing.T) {
	f := newFiles(t)
	at := counterparts(t, f)
	for _, s := range specs()[:4] {
		for name, addr := range at {
			want, known := expected[s.Name][name]
			if !known {
				t.Errorf("nothing is expected of %s at %s", s.Name, name)
			}
			t.Run(s.Name+" at "+name, func(t *testing.T) {
				t.Parallel()
				cfg := driver.Config{"address": address(s.Name, addr)}
				if want.plain != "" {
					names(t, s, cfg, want.plain)
				}
				cfg["tls_ca_file"] = f.path("ca.pem")
				names(t, s, cfg, want.secure)
			})
		}
	}
}

// names has a backend meet what is no store for it.
func names(t *testing.T, s driver.Spec, cfg driver.Config, says string) {
	t.Helper()
	cfg = maps.Clone(cfg)
	cfg["dial_timeout"], cfg["request_timeout"] = "1s", "1s"
	full, err := s.CheckConfig(cfg)
	must(t, err)
	b, err := s.Open(t.Context(), full, slog.New(slog.DiscardHandler))
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	defer func() { must(t, b.Close(ctx)) }()
	// A server that resets the connection may take back what it said before.
	for end := time.Now().Add(timeout); ; time.Sleep(50 * time.Millisecond) {
		err := b.Check(ctx)
		if err != nil && strings.Contains(err.Error(), says) {
			break
		}
		if err == nil || time.Now().After(end) || strings.Contains(err.Error(), "pw-of-the-test") {
			t.Fatalf("Check: %v does not say %q", err, says)
		}
	}
	_, err = b.TryAcquire(ctx, driver.Request{Name: "n", Owner: "o", TTL: 10 * time.Second})
	if !errors.Is(err, driver.ErrNotSent) && !errors.Is(err, driver.ErrDenied) {
		t.Errorf("nothing was executed, and the error does not say so: %v", err)
	}
}

// TestRefusedCertificates: a server that refuses the client's certificate, or
// misses one, is told from one that speaks something else, with the key to
// look at.
func TestRefusedCertificates(t *testing.T) {
	for name, start := range stores {
		if name == "etcd with users" {
			continue // asks for no certificate
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

// address is how a backend is told to look at addr; redlock needs three.
func address(backend, addr string) string {
	switch backend {
	case "mysql":
		return "u:pw-of-the-test@tcp(" + addr + ")/app"
	case "redlock":
		_, port, _ := net.SplitHostPort(addr)
		return addr + ",127.0.0.2:" + port + ",127.0.0.3:" + port
	}
	return addr
}

// counterparts are what may listen somewhere.
func counterparts(t *testing.T, f *files) map[string]string {
	at := map[string]string{}
	web := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) })
	plain, secure := httptest.NewServer(web), httptest.NewTLSServer(web)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	at["HTTP"], at["HTTPS"] = plain.Listener.Addr().String(), secure.Listener.Addr().String()
	at["nobody"] = "127.0.0.1:1"
	at["silent"] = listener(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	at["ends at once"] = listener(t, func(c net.Conn) {})

	own, err := ports.Take(1)
	must(t, err)
	t.Cleanup(func() { must(t, own.Close()) })
	r, err := redisserver.Start(t.Context(), &redisserver.Options{Lines: []string{
		fmt.Sprint("tls-port ", own.Port(0)), "tls-cert-file " + f.path("server.pem"), "tls-key-file " + f.path("server.key"), "tls-ca-cert-file " + f.path("ca.pem")}})
	servers.Keep(t, "redis", r, err)
	at["redis"], at["redis TLS"] = r.Addr(), fmt.Sprint("127.0.0.1:", own.Port(0))

	m, err := mysqlserver.Start(t.Context(), &mysqlserver.Options{Args: []string{"--skip-ssl"}})
	servers.Keep(t, "mysql", m, err)
	at["mysql"] = m.Addr()

	for name, opts := range map[string]*etcdserver.Options{
		"etcd":     nil,
		"etcd TLS": {CertFile: f.path("server.pem"), KeyFile: f.path("server.key"), ClientCAFile: f.path("ca.pem")},
	} {
		e, err := etcdserver.Start(t.Context(), opts)
		servers.Keep(t, "etcd", e, err)
		at[name] = e.Addr()
	}
	return at
}

// listener serves each connection.
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
