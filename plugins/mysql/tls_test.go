package mysql_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
	"github.com/lockbench/lockbench/plugins/mysql"
)

func TestTLS(t *testing.T) {
	ca, dir := configtest.NewAuthority(t), t.TempDir()
	cert, key := ca.Issue(t, dir, "mysql", time.Now().Add(time.Hour))
	authority, stranger := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "stranger.pem")
	configtest.Write(t, authority, ca.PEM)
	configtest.Write(t, stranger, configtest.NewAuthority(t).PEM)
	s := own(t, &mysqlserver.Options{Args: []string{"--ssl-cert=" + cert, "--ssl-key=" + key, "--require-secure-transport=ON"}})
	check := func(cfg driver.Config) func() error {
		cfg["address"] = mysqlserver.Address(s)
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
	for _, cfg := range []driver.Config{{"tls_enabled": "true", "tls_ca_file": authority}, {"tls_enabled": "true", "tls_insecure": "true"}} {
		if err := check(cfg)(); err != nil {
			t.Errorf("%v: %v", cfg, err)
		}
	}
	refused(t, check(driver.Config{"tls_enabled": "true", "tls_ca_file": stranger}), driver.ErrDenied, "tls_ca_file")
	refused(t, check(driver.Config{"tls_enabled": "true", "tls_ca_file": authority, "tls_server_name": "db.example"}), driver.ErrDenied, "tls_server_name")
	refused(t, check(driver.Config{}), driver.ErrDenied, "tls_enabled=true")
}
