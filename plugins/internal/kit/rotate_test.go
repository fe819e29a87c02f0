package kit_test

import (
	"context"
	"crypto/tls"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
	etcdserver "github.com/lockbench/lockbench/internal/servers/etcd"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
	"github.com/lockbench/lockbench/plugins/etcd"
	"github.com/lockbench/lockbench/plugins/mysql"
	"github.com/lockbench/lockbench/plugins/postgres"
	"github.com/lockbench/lockbench/plugins/redis"
	"github.com/lockbench/lockbench/plugins/redlock"
)

const (
	rounds = 2
	// Each certificate of a client expires 7 s (shelfLife) after the client's previous certificate.
	held      = 20
	leaseTTL  = 6 * time.Second
	shelfLife = 7 * time.Second
	timeout   = 30 * time.Second
)

// files are the files that the test replaces. The client and the servers read the same files.
type files struct {
	t           *testing.T
	dir         string
	authorities []*configtest.Authority
	password    string
	expires     time.Time
}

func newFiles(t *testing.T) *files {
	f := &files{t: t, dir: t.TempDir()}
	var all []byte
	for range rounds + 1 {
		a := configtest.NewAuthority(t)
		f.authorities, all = append(f.authorities, a), append(all, a.PEM...)
	}
	configtest.Write(t, f.path("all.pem"), all)
	f.write(0)
	return f
}

func (f *files) path(name string) string { return filepath.Join(f.dir, name) }

// write writes the files for the given round of the test: another authority,
// certificates issued by that authority, and another password.
func (f *files) write(round int) {
	a := f.authorities[round]
	f.password = fmt.Sprint("secret-", round, "-of-the-test")
	configtest.Write(f.t, f.path("ca.pem"), a.PEM)
	a.Issue(f.t, f.dir, "server", time.Now().Add(time.Hour))
	configtest.Write(f.t, f.path("password"), []byte(f.password+"\n"))
	f.client(round, time.Now().Add(shelfLife))
}

func (f *files) client(round int, expires time.Time) {
	f.expires = expires
	f.authorities[round].Issue(f.t, f.dir, "client", expires)
}

func (f *files) config(address string) driver.Config {
	return driver.Config{
		"address": address, "tls_ca_file": f.path("ca.pem"), "tls_cert_file": f.path("client.pem"), "tls_key_file": f.path("client.key"),
		"username": "locks", "password_file": f.path("password"),
	}
}

// store has the servers of one backend.
type store struct {
	spec   driver.Spec
	config driver.Config
	paths  []*path
	rotate func() // makes the servers read the files again
}

var stores = map[string]func(*testing.T, *files) store{
	"redis": func(t *testing.T, f *files) store {
		p, rotate := secureRedis(t, f)
		return store{redis.Spec, f.config(p.Addr()), []*path{p}, rotate}
	},
	"redlock": func(t *testing.T, f *files) store {
		s := store{spec: redlock.Spec}
		var addrs []string
		var rotations []func()
		for range 3 {
			p, rotate := secureRedis(t, f)
			s.paths, addrs, rotations = append(s.paths, p), append(addrs, p.Addr()), append(rotations, rotate)
		}
		s.config = f.config(strings.Join(addrs, ","))
		s.config["node_timeout"], s.config["quarantine"] = "200ms", "off"
		s.rotate = func() {
			for _, rotate := range rotations {
				rotate()
			}
		}
		return s
	},
	"mysql":                  secureMariaDB,
	"postgres":               securePostgres,
	"etcd with certificates": etcdWithCertificates,
	"etcd with users":        etcdWithUsers,
}

func secureRedis(t *testing.T, f *files) (*path, func()) {
	own, err := ports.Take(1)
	must(t, err)
	t.Cleanup(func() { must(t, own.Close()) })
	settings := []any{"tls-cert-file", f.path("server.pem"), "tls-key-file", f.path("server.key"), "tls-ca-cert-file", f.path("ca.pem")}
	lines := []string{fmt.Sprint("tls-port ", own.Port(0)), "user locks on >" + f.password + " ~* &* +@all"}
	for i := 0; i < len(settings); i += 2 {
		lines = append(lines, fmt.Sprint(settings[i], " ", settings[i+1]))
	}
	s, err := redisserver.Start(t.Context(), &redisserver.Options{Lines: lines})
	servers.Keep(t, "redis", s, err)
	admin := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	return through(t, fmt.Sprint("127.0.0.1:", own.Port(0))), func() {
		must(t, admin.Do(t.Context(), append([]any{"CONFIG", "SET"}, settings...)...).Err())
		must(t, admin.Do(t.Context(), "ACL", "SETUSER", "locks", "resetpass", ">"+f.password).Err())
	}
}

func secureMariaDB(t *testing.T, f *files) store {
	s, err := mysqlserver.Start(t.Context(), &mysqlserver.Options{
		Args: []string{"--ssl-cert=" + f.path("server.pem"), "--ssl-key=" + f.path("server.key"), "--ssl-ca=" + f.path("ca.pem")},
		SQL: []string{
			"CREATE USER IF NOT EXISTS locks@'%' IDENTIFIED BY '" + f.password + "' REQUIRE X509",
			"GRANT ALL ON lockbench.* TO locks@'%'",
		},
	})
	servers.Keep(t, "mysql", s, err)
	admin, err := sql.Open("mysql", mysqlserver.Address(s))
	must(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	p := through(t, s.Addr())
	return store{mysql.Spec, f.config("tcp(" + p.Addr() + ")/lockbench"), []*path{p}, func() {
		for _, statement := range []string{"FLUSH SSL", "ALTER USER locks@'%' IDENTIFIED BY '" + f.password + "' REQUIRE X509"} {
			_, err := admin.ExecContext(t.Context(), statement)
			must(t, err)
		}
	}}
}

func securePostgres(t *testing.T, f *files) store {
	s, err := postgresserver.Start(t.Context(), &postgresserver.Options{Certificates: f.dir})
	servers.Keep(t, "postgres", s, err)
	admin, err := postgresserver.Pool(driver.Config{"address": postgresserver.Address(s)})
	must(t, err)
	t.Cleanup(admin.Close)
	do := func(statement string) {
		_, err := admin.Exec(t.Context(), statement)
		must(t, err)
	}
	do("CREATE ROLE locks LOGIN PASSWORD '" + f.password + "'")
	do("GRANT CREATE ON DATABASE postgres TO locks")
	p := through(t, s.Addr())
	return store{postgres.Spec, f.config("postgres://" + p.Addr() + "/postgres"), []*path{p}, func() {
		must(t, postgresserver.Certify(t.Context(), s, f.dir))
		do("ALTER ROLE locks PASSWORD '" + f.password + "'")
	}}
}

// etcdWithCertificates starts a server that knows all authorities from the start, because etcd
// reads the file with the authorities only once. etcd reads its certificate for each connection.
func etcdWithCertificates(t *testing.T, f *files) store {
	p, _ := secureEtcd(t, f, f.path("all.pem"))
	cfg := f.config(p.Addr())
	delete(cfg, "username")
	delete(cfg, "password_file")
	return store{etcd.Spec, cfg, []*path{p}, func() {}}
}

func etcdWithUsers(t *testing.T, f *files) store {
	p, admin := secureEtcd(t, f, "")
	password := f.password
	root := admin("", "")
	for _, user := range []string{"root", "locks"} {
		_, err := root.UserAdd(t.Context(), user, password)
		must(t, err)
		_, err = root.UserGrantRole(t.Context(), user, "root")
		must(t, err)
	}
	_, err := root.AuthEnable(t.Context())
	must(t, err)
	return store{etcd.Spec, f.config(p.Addr()), []*path{p}, func() {
		_, err := admin("root", password).UserChangePassword(t.Context(), "locks", f.password)
		must(t, err)
	}}
}

func secureEtcd(t *testing.T, f *files, clients string) (*path, func(user, password string) *clientv3.Client) {
	s, err := etcdserver.Start(t.Context(), &etcdserver.Options{CertFile: f.path("server.pem"), KeyFile: f.path("server.key"), ClientCAFile: clients})
	servers.Keep(t, "etcd", s, err)
	return through(t, s.Addr()), func(user, password string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + s.Addr()}, TLS: &tls.Config{InsecureSkipVerify: true},
			Username: user, Password: password, Logger: zap.NewNop(), DialTimeout: timeout,
		})
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

type path struct {
	*inject.Proxy
	server string
}

func through(t *testing.T, server string) *path {
	p, err := inject.NewProxy(server)
	must(t, err)
	t.Cleanup(func() { must(t, p.Close()) })
	return &path{p, server}
}

func (p *path) cut(t *testing.T) {
	t.Helper()
	must(t, p.Retarget("127.0.0.1:1"))
	must(t, p.Retarget(p.server))
}

// TestRotation replaces certificates, authorities and passwords while leases are held. It breaks
// the connections after the old certificates have expired. No lease may be lost.
func TestRotation(t *testing.T) {
	for name, start := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t)
			s := start(t, f)
			f.client(0, time.Now().Add(shelfLife)) // a new certificate, because the start took time
			leases := hold(t, s)
			for round := 1; round <= rounds; round++ {
				old := f.expires
				f.write(round)
				f.client(round, old.Add(shelfLife))
				s.rotate()
				time.Sleep(time.Until(old.Add(time.Second))) // certificates expire at whole seconds
				for _, p := range s.paths {
					p.cut(t)
				}
				f.renewed(leases, time.Now().Add(leaseTTL))
			}
		})
	}
}

func hold(t *testing.T, s store) []*core.Lease {
	full, err := s.spec.CheckConfig(s.config)
	must(t, err)
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	b, err := s.spec.Open(t.Context(), full, log)
	must(t, err)
	c := core.New(b, &core.Options{Logger: log})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		must(t, c.Close(ctx))
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var leases []*core.Lease
	for i := range held {
		l, err := c.Lock(fmt.Sprint("rotation/", i), &core.LockOptions{TTL: leaseTTL})
		must(t, err)
		lease, err := l.Acquire(ctx)
		must(t, err)
		leases = append(leases, lease)
	}
	return leases
}

func (f *files) renewed(leases []*core.Lease, deadline time.Time) {
	f.t.Helper()
	for i, l := range leases {
		for l.Deadline().Before(deadline) {
			select {
			case <-l.Done():
				f.t.Fatalf("lease %d of %d is lost: %v", i+1, len(leases), l.Err())
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
