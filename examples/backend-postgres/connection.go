package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
)

// sessionSettings are what the statements rely on, whatever the server and the
// role have as defaults.
var sessionSettings = map[string]string{
	// Each statement of a step must see what was committed while the one before
	// waited for a row. Under repeatable read it would see the past.
	"default_transaction_isolation": "read committed",
	// A grant is on disk before it is answered, if the server's fsync is on.
	"synchronous_commit": "on",
	// Nothing of ours waits in the server for longer than a tombstone lasts, so a
	// withdrawn acquire cannot come after it.
	"lock_timeout":                        "5s",
	"statement_timeout":                   "10s",
	"idle_in_transaction_session_timeout": "10s",
	"application_name":                    "lockbench",
}

// dialTimeout bounds a connection, login included.
const dialTimeout = 5 * time.Second

// connection makes the pool's settings. Its errors show no value: a password may
// stand in the wrong key.
func connection(cfg driver.Config) (*pgxpool.Config, error) {
	if cfg["password"] != "" && cfg["password_file"] != "" {
		return nil, errors.New("password and password_file are both given")
	}
	var hosts, ports []string
	for _, address := range cfg.List("address") {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host == "" || port == "" {
			return nil, errors.New("address is not a list of HOST:PORT")
		}
		hosts, ports = append(hosts, host), append(ports, port)
	}
	// Each parameter is named, so that no PGHOST or PGSSLMODE of the environment
	// takes the place of one.
	parameters := map[string]string{
		"host": strings.Join(hosts, ","), "port": strings.Join(ports, ","), "dbname": cfg["database"],
		"user": cfg["username"], "password": cfg["password"], "sslmode": "disable", "target_session_attrs": "any",
		"passfile": os.DevNull,
	}
	if cfg.Bool("tls_enabled") || cfg["tls_ca_file"] != "" {
		// Note: prefer and require, the usual choices, accept any certificate.
		parameters["sslmode"] = "verify-full"
		if cfg["tls_ca_file"] != "" {
			parameters["sslrootcert"] = cfg["tls_ca_file"]
		}
	}
	if len(hosts) > 1 {
		parameters["target_session_attrs"] = "read-write"
	}
	var text strings.Builder
	quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
	for key, value := range parameters {
		fmt.Fprintf(&text, "%s='%s' ", key, quote.Replace(value))
	}
	settings, err := pgxpool.ParseConfig(text.String())
	if err != nil {
		return nil, errors.New("address, database or tls_ca_file cannot be used")
	}
	settings.MaxConns = int32(max(1, min(cfg.Int("connections"), 1000)))
	settings.ConnConfig.ConnectTimeout = dialTimeout
	for key, value := range sessionSettings {
		settings.ConnConfig.RuntimeParams[key] = value
	}
	settings.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if cfg["password_file"] == "" {
			return nil
		}
		text, err := os.ReadFile(cfg["password_file"])
		c.Password = strings.TrimRight(string(text), "\r\n")
		return err
	}
	return settings, nil
}
