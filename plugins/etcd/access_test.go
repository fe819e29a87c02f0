package etcd

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
)

const secret = "open-sesame-4711"

// withUsers makes the server demand passwords, and adds the users root and locks. The user called
// locks may access only keys that begin with prefix.
func withUsers(t *testing.T, s *servers.Server, prefix string) *clientv3.Client {
	t.Helper()
	c, ctx := plain(t, s), t.Context()
	for _, user := range []string{"root", "locks"} {
		_, err := c.UserAdd(ctx, user, secret)
		must(t, err)
		_, err = c.RoleAdd(ctx, user)
		must(t, err)
		_, err = c.UserGrantRole(ctx, user, user)
		must(t, err)
	}
	_, err := c.RoleGrantPermission(ctx, "locks", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	must(t, err)
	_, err = c.AuthEnable(ctx)
	must(t, err)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr()}, Username: "root", Password: secret, Logger: zap.NewNop()})
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	return root
}

func use(t *testing.T, b *Backend, name string) {
	t.Helper()
	must(t, b.Check(t.Context()))
	r := acquire(t, b, lock(name, "a"))
	must(t, b.Renew(t.Context(), r))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan driver.Holder, 4)
	ended := make(chan error, 1)
	go func() { ended <- b.Observe(ctx, name, func(h driver.Holder) { seen <- h }) }()
	select {
	case h := <-seen:
		if h.Token != r.Token {
			t.Errorf("observed %+v", h)
		}
	case err := <-ended:
		t.Fatalf("Observe: %v", err)
	}
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(b.Wait(ctx, lock(name, "b"), 10*time.Second)) }()
	eventually(t, "it waits", func() bool {
		h, err := b.Inspect(t.Context(), name)
		return err == nil && h.Waiters == 1
	})
	must(t, b.Release(t.Context(), r))
	must(t, <-woken)
	withdrawn := lock(name, "b")
	must(t, b.Withdraw(t.Context(), withdrawn.Name, withdrawn.Owner))
	if _, err := b.TryAcquire(t.Context(), withdrawn); !errors.Is(err, driver.ErrWithdrawn) {
		t.Errorf("a withdrawn owner: %v", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Observe: %v", err)
	}
}

func TestUsers(t *testing.T) {
	versions(t, func(t *testing.T, binary string) {
		s := start(t, &etcdserver.Options{Binary: binary})
		root := withUsers(t, s, "mine/")
		o := on(s)
		o.Username, o.Password, o.Prefix = "locks", secret, "mine/"
		b := connect(t, o)
		use(t, b, "jobs")
		r := acquire(t, b, lock("long", "a"))
		// A change of the password ends the login of the user, as if the login had expired.
		_, err := root.UserChangePassword(t.Context(), "locks", secret)
		must(t, err)
		must(t, b.Renew(t.Context(), r))
		use(t, b, "jobs-again")
	})
}

func TestBadInput(t *testing.T) {
	s := start(t, nil)
	users := start(t, nil)
	withUsers(t, users, "mine/")
	ca := newAuthority(t)
	secure := start(t, &etcdserver.Options{CertFile: ca.cert, KeyFile: ca.key})
	cases := map[string]struct {
		cfg   driver.Config
		class error
		says  string
	}{
		"wrong password":     {driver.Config{"address": users.Addr(), "username": "locks", "password": "wrong-" + secret}, driver.ErrDenied, "username and password"},
		"no user":            {driver.Config{"address": users.Addr()}, driver.ErrDenied, "set username and password"},
		"missing rights":     {driver.Config{"address": users.Addr(), "username": "locks", "password": secret, "prefix": "theirs/"}, driver.ErrDenied, `"theirs/"`},
		"server down":        {driver.Config{"address": "127.0.0.1:1"}, driver.ErrUnavailable, "127.0.0.1:1"},
		"down with a user":   {driver.Config{"address": "127.0.0.1:1", "username": "locks", "password": secret}, driver.ErrUnavailable, "connection refused"},
		"TLS to plain":       {driver.Config{"address": "https://" + s.Addr()}, driver.ErrUnavailable, "what both ends say of TLS"},
		"plain to TLS":       {driver.Config{"address": secure.Addr()}, driver.ErrUnavailable, "TLS"},
		"unknown authority":  {driver.Config{"address": "https://" + secure.Addr()}, driver.ErrDenied, "tls_ca_file"},
		"no port":            {driver.Config{"address": "127.0.0.1"}, driver.ErrConfig, "host:port"},
		"one node twice":     {driver.Config{"address": "127.0.0.1:1, 127.0.0.1:1"}, driver.ErrConfig, "are the same"},
		"password in a URL":  {driver.Config{"address": "http://me:" + secret + "@127.0.0.1:1"}, driver.ErrConfig, "not into the address"},
		"password, no user":  {driver.Config{"password": secret}, driver.ErrConfig, "username and password"},
		"no such CA file":    {driver.Config{"tls_ca_file": "/nonexistent"}, driver.ErrConfig, "tls_ca_file"},
		"unknown scheme":     {driver.Config{"address": "ftp://127.0.0.1:1"}, driver.ErrConfig, "none of http"},
		"mixed TLS":          {driver.Config{"address": "https://127.0.0.1:1,http://127.0.0.1:2"}, driver.ErrConfig, "1 of 2"},
		"negative timeout":   {driver.Config{"request_timeout": "-1s"}, driver.ErrConfig, "request_timeout is -1s"},
		"prefix not UTF-8":   {driver.Config{"prefix": "\xff"}, driver.ErrConfig, "UTF-8"},
		"cert without a key": {driver.Config{"tls_cert_file": ca.cert}, driver.ErrConfig, "tls_key_file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			err := tryConfig(t, c.cfg)
			if !errors.Is(err, c.class) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want %v, saying %q", err, c.class, c.says)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows the secret: %v", err)
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func tryConfig(t *testing.T, cfg driver.Config) error {
	full, err := Spec.CheckConfig(cfg)
	if err != nil {
		return err
	}
	b, err := Spec.Open(t.Context(), full, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer func() { must(t, b.Close(context.WithoutCancel(t.Context()))) }()
	checked := b.Check(t.Context())
	if _, err := b.TryAcquire(t.Context(), lock("jobs", "a")); (err == nil) != (checked == nil) {
		t.Errorf("Check says %v, TryAcquire says %v", checked, err)
	}
	return checked
}

func TestTTLs(t *testing.T) {
	s := start(t, nil)
	b := connect(t, on(s))
	must(t, b.Check(t.Context()))
	if p := b.Properties(); p.TTLMin != 2*time.Second || !strings.HasPrefix(p.Server, "etcd 3.") {
		t.Errorf("learned %v, %q", p.TTLMin, p.Server)
	}
	for ttl, says := range map[time.Duration]string{
		1500 * time.Millisecond: "multiple", time.Second: "election timeout", 10 * 365 * 24 * time.Hour: "maximum",
	} {
		r := lock("jobs", "a")
		r.TTL = ttl
		if _, err := b.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("TTL %v: %v", ttl, err)
		}
	}
	// A server with a long election timeout grants no short TTL. The first request must learn the
	// server's shortest TTL, even before any Check.
	slow := start(t, &etcdserver.Options{Args: []string{"--heartbeat-interval=500", "--election-timeout=5000"}})
	b = connect(t, on(slow))
	r := lock("jobs", "a")
	r.TTL = 4 * time.Second
	if _, err := b.TryAcquire(t.Context(), r); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("TTL 4s where 8s is the minimum: %v", err)
	}
	// A wait must succeed even if the backend first requests too short a TTL for the waiters' lease.
	b.leases.setLeast(assumedTTLMin)
	if _, err := b.Wait(t.Context(), lock("other", "b"), 100*time.Millisecond); err != nil {
		t.Errorf("wait before the shortest TTL is known: %v", err)
	}
	must(t, b.Check(t.Context()))
	if p := b.Properties(); p.TTLMin != 8*time.Second {
		t.Errorf("learned %v", p.TTLMin)
	}
	r.TTL = 8 * time.Second
	acquire(t, b, r)
}

func TestTLS(t *testing.T) {
	versions(t, func(t *testing.T, binary string) {
		ca := newAuthority(t)
		s := start(t, &etcdserver.Options{Binary: binary, CertFile: ca.cert, KeyFile: ca.key, ClientCAFile: ca.file})
		full, err := Spec.CheckConfig(driver.Config{
			"address": s.Addr(), "tls_ca_file": ca.file, "tls_cert_file": ca.cert, "tls_key_file": ca.key,
		})
		must(t, err)
		var o Options
		config.Decode(full, &o)
		use(t, connect(t, o), "jobs")
		full["tls_cert_file"], full["tls_key_file"] = "", ""
		// The client may see the end of the connection before the TLS alert that explains it.
		eventually(t, "the server's reason arrives", func() bool {
			err := tryConfig(t, full)
			if !errors.Is(err, driver.ErrNotSent) {
				t.Fatalf("without a client certificate: %v", err)
			}
			return errors.Is(err, driver.ErrDenied) && strings.Contains(err.Error(), "tls_cert_file")
		})
	})
}

// authority holds the file of a certificate authority, and the files of one certificate for servers
// on loopback and their clients.
type authority struct{ file, cert, key string }

func newAuthority(t *testing.T) authority {
	t.Helper()
	a, dir := configtest.NewAuthority(t), t.TempDir()
	file := filepath.Join(dir, "ca.pem")
	configtest.Write(t, file, a.PEM)
	cert, key := a.Issue(t, dir, "loopback", time.Now().Add(time.Hour))
	return authority{file: file, cert: cert, key: key}
}
