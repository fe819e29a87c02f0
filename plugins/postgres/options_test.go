package postgres_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/internal/servers"
	postgresserver "github.com/lockbench/lockbench/internal/servers/postgres"
	"github.com/lockbench/lockbench/plugins/postgres"
)

// TestOptions checks that Open refuses options that cannot work or contradict each other, and that
// its error names the keys of these options.
func TestOptions(t *testing.T) {
	const address = "postgres://u@h:1/db"
	for _, tt := range []struct {
		cfg   driver.Config
		names string // "" if the options can work
	}{
		{driver.Config{"address": address}, ""},
		{driver.Config{"address": "postgresql://u:p@h1:1,h2:2/db?sslmode=verify-full"}, ""},
		{driver.Config{"address": address, "listen_address": "none"}, ""},
		{driver.Config{"address": "h:1"}, "address"},
		{driver.Config{"address": "postgres://h:1/"}, "address"},
		{driver.Config{"address": address + "?sslmode=require"}, "sslmode"},
		{driver.Config{"address": address + "?sslrootcert=/x"}, "tls_ca_file"},
		{driver.Config{"address": address + "?sslmode=disable", "tls_enabled": "true"}, "tls_enabled"},
		{driver.Config{"address": address, "username": "another"}, "username"},
		{driver.Config{"address": "postgres://u:p@h/db", "password": "q"}, "password"},
		{driver.Config{"address": address, "listen_address": "elsewhere"}, "listen_address"},
		{driver.Config{"address": address, "prefix": "a/b"}, "prefix"},
		{driver.Config{"address": address, "connections": "1"}, "connections"},
	} {
		b, err := driver.Open(t.Context(), postgres.Spec, tt.cfg, nil)
		if err == nil {
			must(t, b.Close(t.Context()))
		}
		if (err != nil) != (tt.names != "") || err != nil && (!errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), tt.names)) {
			t.Errorf("%v: %v, want %q", tt.cfg, err, tt.names)
		}
	}
}

// TestTLS checks that certificates are verified, and that errors name the wrong configuration key.
func TestTLS(t *testing.T) {
	ca, dir := configtest.NewAuthority(t), t.TempDir()
	ca.Issue(t, dir, "server", time.Now().Add(time.Hour))
	cert, key := ca.Issue(t, dir, "client", time.Now().Add(time.Hour))
	authority, stranger := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "stranger.pem")
	configtest.Write(t, authority, ca.PEM)
	configtest.Write(t, stranger, configtest.NewAuthority(t).PEM)
	s := own(t, &postgresserver.Options{Certificates: dir})
	c := connect(t, s)
	for _, statement := range []string{"CREATE ROLE plain LOGIN PASSWORD 'plain-password'", "GRANT CREATE ON DATABASE postgres TO plain"} {
		_, err := c.Exec(t.Context(), statement)
		must(t, err)
	}
	for _, tt := range []struct {
		connect postgres.Connect
		names   string
	}{
		{postgres.Connect{TLSCAFile: authority, TLSCertFile: cert, TLSKeyFile: key}, ""},
		{postgres.Connect{TLSInsecure: true, TLSCertFile: cert, TLSKeyFile: key}, ""},
		{postgres.Connect{TLSCAFile: stranger, TLSCertFile: cert, TLSKeyFile: key}, "tls_ca_file"},
		{postgres.Connect{TLSCAFile: authority, TLSCertFile: cert, TLSKeyFile: key, TLSServerName: "db.example"}, "tls_server_name"},
		{postgres.Connect{TLSCAFile: authority}, "tls_cert_file"},
		{postgres.Connect{}, "tls_enabled=true"},
	} {
		tt.connect.Password = "plain-password"
		err := open(t, postgres.Options{Address: servers.LoginTo(postgresserver.Address(s), "postgres://plain"), Connect: tt.connect}).Check(t.Context())
		if (err != nil) != (tt.names != "") || err != nil && (!errors.Is(err, driver.ErrDenied) || !strings.Contains(err.Error(), tt.names)) {
			t.Errorf("%+v: %v, want %q", tt.connect, err, tt.names)
		}
	}
}
