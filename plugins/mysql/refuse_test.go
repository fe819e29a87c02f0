package mysql_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/internal/backendtest"
	"github.com/lockbench/lockbench/plugins/mysql"
)

const secret = "s3cret-of-mine"

// refused fails the test unless the function f returns an error within 5 s. The error must wrap the
// parameter class, contain the texts in says, and not contain the password.
func refused(t *testing.T, f func() error, class error, says ...string) {
	t.Helper()
	start := time.Now()
	err := f()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, class) {
		t.Fatalf("got %v, want %v", err, class)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%q does not say %q", err, s)
		}
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("it shows the password: %v", err)
	}
}

func opening(cfg driver.Config) func() error {
	return func() error {
		full, err := mysql.Spec.CheckConfig(cfg)
		if err != nil {
			return err
		}
		b, err := mysql.Spec.Open(context.Background(), full, slog.New(slog.DiscardHandler))
		if err == nil {
			_ = b.Close(context.Background())
		}
		return err
	}
}

func TestBadConfiguration(t *testing.T) {
	good := "me:" + secret + "@tcp(localhost:3306)/app"
	for name, c := range map[string]struct {
		cfg  driver.Config
		says string
	}{
		"no address":     {driver.Config{}, "address"},
		"no slash":       {driver.Config{"address": "me:" + secret + "@tcp(localhost:3306)"}, "not of the form"},
		"a URL":          {driver.Config{"address": "mysql://me:" + secret + "@localhost/app"}, "not of the form"},
		"no database":    {driver.Config{"address": "me:" + secret + "@tcp(localhost:3306)/"}, "database"},
		"parse time":     {driver.Config{"address": good + "?parseTime=true"}, "parseTime=false"},
		"prepared":       {driver.Config{"address": good + "?interpolateParams=false"}, "interpolateParams=true"},
		"isolation":      {driver.Config{"address": good + "?transaction_isolation=%27SERIALIZABLE%27"}, "transaction_isolation"},
		"time zone":      {driver.Config{"address": good + "?loc=Local"}, "loc=UTC"},
		"sql mode":       {driver.Config{"address": good + "?sql_mode=%27%27"}, "sql_mode"},
		"prefix":         {driver.Config{"address": good, "prefix": "Jobs`"}, "lower-case"},
		"connections":    {driver.Config{"address": good, "connections": "1"}, "between 2 and 1000"},
		"old timeout":    {driver.Config{"address": good, "timeout": "1s"}, "request_timeout"},
		"timeout":        {driver.Config{"address": good, "request_timeout": "1ms"}, "10ms"},
		"two passwords":  {driver.Config{"address": good, "password": "other-" + secret}, "password: the address has another"},
		"and in a file":  {driver.Config{"address": good, "password_file": "/x"}, "address and password_file"},
		"ca without tls": {driver.Config{"address": good, "tls_ca_file": "/x", "tls_enabled": "false"}, "tls_enabled=false and tls_ca_file"},
		"ca, no TLS":     {driver.Config{"address": good + "?tls=false", "tls_ca_file": "/x"}, "tls= in address"},
		"TLS, but not":   {driver.Config{"address": good + "?tls=true", "tls_enabled": "false"}, "tls= in address and tls_enabled"},
		"no such ca":     {driver.Config{"address": good, "tls_enabled": "true", "tls_ca_file": "/no/such/file"}, "tls_ca_file"},
		"unknown":        {driver.Config{"address": good, "table": "x"}, "table"},
	} {
		t.Run(name, func(t *testing.T) { refused(t, opening(c.cfg), driver.ErrConfig, c.says) })
	}
}

func changed(t *testing.T, address string, change func(*mysqldriver.Config)) string {
	t.Helper()
	c, err := mysqldriver.ParseDSN(address)
	must(t, err)
	change(c)
	return c.FormatDSN()
}

// checking returns a function that opens a backend with the options o and calls Check. It also
// calls TryAcquire. Both calls must succeed, both be denied, or both fail in another way.
func checking(t *testing.T, o mysql.Options) func() error {
	return func() error {
		b := open(t, o)
		err := b.Check(t.Context())
		if _, also := b.TryAcquire(t.Context(), want("jobs", time.Second)); (also == nil) != (err == nil) || errors.Is(also, driver.ErrDenied) != errors.Is(err, driver.ErrDenied) {
			t.Errorf("Check says %v, and TryAcquire %v", err, also)
		}
		return err
	}
}

func TestDenied(t *testing.T) {
	a := address(t)
	db := connect(t, a)
	defer db.Close()
	user := func(name string, grants ...string) string {
		t.Helper()
		for _, s := range append([]string{"DROP USER IF EXISTS " + name, "CREATE USER " + name + " IDENTIFIED BY '" + secret + "'"}, grants...) {
			if _, err := db.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			db := connect(t, a)
			defer db.Close()
			if _, err := db.Exec("DROP USER " + name); err != nil {
				t.Error(err)
			}
		})
		return changed(t, a, func(c *mysqldriver.Config) { c.User, c.Passwd = name, secret })
	}
	table := table(fresh(t, a))
	prefix := strings.TrimSuffix(strings.Trim(table, "`"), "locks")

	wrong := changed(t, a, func(c *mysqldriver.Config) { c.Passwd = secret })
	refused(t, checking(t, mysql.Options{Address: wrong}), driver.ErrDenied, "password")
	missing := changed(t, a, func(c *mysqldriver.Config) { c.DBName = "no_such_database" })
	refused(t, checking(t, mysql.Options{Address: missing}), driver.ErrDenied, "no_such_database", "create the database")
	nobody := user("lockbench_nobody")
	refused(t, checking(t, mysql.Options{Address: nobody}), driver.ErrDenied, "GRANT")
	reader := user("lockbench_reader", "GRANT SELECT ON "+table+" TO lockbench_reader")
	refused(t, checking(t, mysql.Options{Address: reader, Prefix: prefix}), driver.ErrDenied, "GRANT")
	refused(t, checking(t, mysql.Options{Address: reader, Prefix: "not_there_"}), driver.ErrDenied, "ddl")
	refused(t, checking(t, mysql.Options{Address: a, Prefix: "not_there_", CreateTable: new(false)}), driver.ErrDenied, "ddl")

	writer := user("lockbench_writer", "GRANT SELECT, INSERT, UPDATE, DELETE ON "+table+" TO lockbench_writer")
	b := open(t, mysql.Options{Address: writer, Prefix: prefix, CreateTable: new(false)})
	if err := b.Check(t.Context()); err != nil {
		t.Errorf("with the rights that ddl prints: %v", err)
	}
	wakesAnother(t, b, open(t, mysql.Options{Address: writer, Prefix: prefix}))
}

func wakesAnother(t *testing.T, holder, waiter *mysql.Backend) {
	t.Helper()
	r := acquire(t, holder, want("jobs", 10*time.Second))
	w := want("jobs", 10*time.Second)
	woken := make(chan error, 1)
	go func() { woken <- backendtest.Err(waiter.Wait(t.Context(), w, 4*time.Second)) }()
	eventually(t, "it waits", func() bool {
		h, err := holder.Inspect(t.Context(), "jobs")
		return err == nil && h.Waiters == 1
	})
	pause(t, 50*time.Millisecond)
	release(t, holder, r)
	released := time.Now()
	must(t, <-woken)
	if took := time.Since(released); took > time.Second {
		t.Errorf("the waiter was woken after %v", took)
	}
	release(t, waiter, acquire(t, waiter, w))
}

func TestReadOnlyServer(t *testing.T) {
	s := own(t, &mysqlserver.Options{SQL: []string{"SET GLOBAL read_only=1"}})
	// This account may write to a read-only server, so the backend must check the setting.
	refused(t, checking(t, mysql.Options{Address: mysqlserver.Address(s)}), driver.ErrNotSent, "read-only", "primary")
}

// TestDemotion makes a server read-only while a host uses it, as a failover
// does. The error must say that the request was not carried out, and that a
// retry may succeed.
func TestDemotion(t *testing.T) {
	const user = "lockbench_plain" // an account with every right may write to a read-only server
	s := own(t, &mysqlserver.Options{SQL: []string{"CREATE USER " + user + " IDENTIFIED BY '" + secret + "'", "GRANT ALL ON lockbench.* TO " + user}})
	b := open(t, mysql.Options{Address: changed(t, mysqlserver.Address(s), func(c *mysqldriver.Config) { c.User, c.Passwd = user, secret })})
	r := acquire(t, b, want("jobs", 10*time.Second))
	db := connect(t, mysqlserver.Address(s))
	defer db.Close()
	if _, err := db.Exec("SET GLOBAL read_only=1"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // on an existing connection, and on a new one
		for what, err := range map[string]error{
			"acquire":  second(b.TryAcquire(t.Context(), want("other", time.Second))),
			"renew":    b.Renew(t.Context(), r),
			"release":  b.Release(t.Context(), r),
			"withdraw": b.Withdraw(t.Context(), "other", "o"),
			"proclaim": b.Proclaim(t.Context(), r),
			"check":    b.Check(t.Context()),
		} {
			if errors.Is(err, driver.ErrDenied) || !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNotSent) {
				t.Errorf("%s on a read-only server: %v", what, err)
			}
		}
	}
	if _, err := db.Exec("SET GLOBAL read_only=0"); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); err != nil {
		t.Error(err)
	}
	release(t, b, r)
}

// TestNothingWasSent checks that a request's error wraps ErrNotSent if the
// request finds no connection because each login fails.
func TestNothingWasSent(t *testing.T) {
	s := own(t, &mysqlserver.Options{Args: []string{"--max-connections=10"}})
	a := mysqlserver.Address(s)
	sent := func(what string, o mysql.Options) {
		t.Helper()
		if _, err := open(t, o).TryAcquire(t.Context(), want("jobs", time.Second)); !errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%s: %v", what, err)
		}
	}
	sent("wrong password", mysql.Options{Address: changed(t, a, func(c *mysqldriver.Config) { c.Passwd = secret })})
	sent("no database", mysql.Options{Address: changed(t, a, func(c *mysqldriver.Config) { c.DBName = "nowhere" })})
	sent("no TLS there", mysql.Options{Address: a, Connect: mysql.Connect{TLSEnabled: new(true)}})
	db := connect(t, a)
	defer db.Close()
	db.SetMaxIdleConns(20)
	for {
		conn, err := db.Conn(t.Context())
		if err != nil {
			break // error 1040: the server has too many connections
		}
		defer conn.Close()
	}
	sent("too many connections", mysql.Options{Address: a})
}

func TestTLSToAPlainPort(t *testing.T) {
	s := own(t, &mysqlserver.Options{Args: []string{"--loose-skip-ssl", "--tls-version="}})
	cfg, err := mysql.Spec.CheckConfig(driver.Config{"address": mysqlserver.Address(s), "tls_enabled": "true"})
	must(t, err)
	refused(t, func() error {
		b, err := mysql.Spec.Open(t.Context(), cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer b.Close(context.Background())
		return b.Check(t.Context())
	}, driver.ErrDenied, "TLS")
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	silent := l.Addr().String() // the kernel accepts connections, and no program answers
	defer l.Close()
	for name, at := range map[string]string{"refuses": "127.0.0.1:1", "silent": silent} {
		t.Run(name, func(t *testing.T) {
			o := mysql.Options{Address: "me:" + secret + "@tcp(" + at + ")/app", Connect: mysql.Connect{DialTimeout: time.Second, RequestTimeout: time.Second}}
			refused(t, checking(t, o), driver.ErrUnavailable)
			b := open(t, o)
			if _, err := b.TryAcquire(t.Context(), want("jobs", time.Second)); !errors.Is(err, driver.ErrNotSent) {
				t.Errorf("nothing was sent, and the error does not say so: %v", err)
			}
		})
	}
}

func TestDDL(t *testing.T) {
	a := address(t)
	prefix := fresh(t, a)
	db := connect(t, a)
	defer db.Close()
	if _, err := db.Exec("DROP TABLE " + table(prefix)); err != nil {
		t.Fatal(err)
	}
	cfg, err := mysql.Spec.CheckConfig(driver.Config{"address": a, "prefix": prefix, "create_table": "false"})
	must(t, err)
	var out bytes.Buffer
	must(t, mysql.Spec.Commands[0].Run(t.Context(), cfg, &out))
	create, grant, _ := strings.Cut(out.String(), ";")
	if !strings.Contains(grant, "GRANT SELECT, INSERT, UPDATE, DELETE ON") {
		t.Errorf("no rights: %s", grant)
	}
	if _, err := db.Exec(create); err != nil {
		t.Fatalf("%v: %s", err, create)
	}
	b := open(t, mysql.Options{Address: a, Prefix: prefix, CreateTable: new(false)})
	release(t, b, acquire(t, b, want("jobs", time.Second)))
}
