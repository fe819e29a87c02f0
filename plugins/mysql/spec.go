package mysql

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name: "mysql",
	Doc:  "locks as rows of a table in MySQL 8.4 and later or MariaDB 10.6 and later",
	Keys: []driver.Key{
		{Name: "address", Type: driver.TypeString, Required: true, Secret: true, Doc: "server and database as go-sql-driver/mysql writes them: user:password@tcp(host:3306)/database"},
		{Name: "username", Type: driver.TypeString, Doc: "instead of the one in address"},
		{Name: "password", Type: driver.TypeString, Secret: true, Doc: "instead of the one in address"},
		{Name: "prefix", Type: driver.TypeString, Default: defaultPrefix, Doc: "of the table's name, PREFIXlocks; hosts with the same one exclude each other"},
		{Name: "create_table", Type: driver.TypeBool, Default: "true", Doc: "create the table when it is missing; else see the ddl command"},
		{Name: "connections", Type: driver.TypeInt, Default: strconv.Itoa(defaultConnections), Doc: "the most that are used for statements, 2 to 1000"},
		{Name: "wait_connections", Type: driver.TypeInt, Default: strconv.Itoa(defaultWaitConnections), Doc: "the most that waiters are blocked on, -1 (none) to 1000; those above it poll"},
		{Name: "timeout", Type: driver.TypeDuration, Default: defaultTimeout.String(), Doc: "of a connection attempt and of one statement, 100ms to 1m"},
		{Name: "tls_enabled", Type: driver.TypeBool, Default: "false", Doc: "encrypt connections and verify the server"},
		{Name: "tls_ca_file", Type: driver.TypeString, Doc: "file with the certificates that may sign the server's; default: those of the system"},
		{Name: "tls_cert_file", Type: driver.TypeString, Doc: "file with this client's certificate"},
		{Name: "tls_key_file", Type: driver.TypeString, Doc: "file with its key"},
		{Name: "tls_server_name", Type: driver.TypeString, Doc: "name in the server's certificate; default: the host in address"},
		{Name: "tls_insecure", Type: driver.TypeBool, Default: "false", Doc: "encrypt without verifying the server"},
	},
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o, err := fromConfig(cfg)
		if err != nil {
			return nil, fmt.Errorf("mysql: %w: %w", driver.ErrConfig, err)
		}
		o.Logger = log
		b, err := Open(&o)
		if err != nil {
			return nil, err
		}
		return b, nil
	},
	Properties: properties,
	Commands: []driver.Command{{
		Name: "ddl",
		Doc:  "print the statements that create the table and grant the rights",
		Run: func(_ context.Context, cfg driver.Config, stdout io.Writer) error {
			return printDDL(cfg, stdout)
		},
	}},
}

// properties are the claims before the server was reached. Fencing becomes
// strict when every commit is on disk before it is acknowledged.
var properties = driver.Properties{
	Name:           "mysql",
	Fencing:        driver.FencingDurable,
	Scope:          driver.ScopeShared,
	TTLMin:         20 * time.Millisecond,
	TTLStep:        time.Millisecond,
	TTLMax:         31 * 24 * time.Hour,
	FIFO:           true,
	TimedTokens:    true,
	Durability:     "unknown",
	SurvivesPlugin: true,
	Powers:         []driver.Power{driver.PowerWaiter, driver.PowerBatcher, driver.PowerHandover, driver.PowerAdmin},
}

func fromConfig(cfg driver.Config) (Options, error) {
	t, err := tlsConfig(cfg)
	if err != nil {
		return Options{}, err
	}
	waits := cfg.Int("wait_connections")
	if waits == 0 {
		waits = -1 // a configuration that says 0 means it
	}
	return Options{
		Address: cfg["address"], Username: cfg["username"], Password: cfg["password"], Prefix: cfg["prefix"],
		KeepSchema: !cfg.Bool("create_table"), Connections: cfg.Int("connections"), WaitConnections: waits,
		Timeout: cfg.Duration("timeout"), TLS: t,
	}, nil
}

// Properties tells the claims, as far as the server is known.
func (b *Backend) Properties() driver.Properties {
	p := properties
	p.Powers = slices.Clone(p.Powers)
	if s := b.server.Load(); s != nil {
		p.Server, p.Durability = s.product(), s.durability()
		if s.durable() {
			p.Fencing = driver.FencingStrict
		}
	}
	return p
}

func (s *server) product() string {
	if s.mariadb {
		return "MariaDB " + strings.SplitN(s.version, "-", 2)[0]
	}
	return "MySQL " + s.version
}

// durable tells whether a commit is on disk when it is acknowledged.
func (s *server) durable() bool { return s.flush == 1 && (!s.binlog || s.sync == 1) }

func (s *server) durability() string {
	d := fmt.Sprintf("innodb_flush_log_at_trx_commit=%d", s.flush)
	if s.binlog {
		d += fmt.Sprintf(", sync_binlog=%d", s.sync)
	}
	return d
}
