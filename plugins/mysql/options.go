package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

// Connect has the settings of every connection to the server. Parameters in [Options].Address must
// not contradict these settings.
type Connect = config.Connect

// Options configure [Open]. Zero fields mean the defaults. The tag of a field
// names its configuration key.
type Options struct {
	// Address is the server and its database, in the form of
	// github.com/go-sql-driver/mysql: "user:password@tcp(db.example:3306)/app". Required.
	Address string `key:"address" required:"true" secret:"true" doc:"server and database as go-sql-driver/mysql writes them: user:password@tcp(host:3306)/database"`
	Connect `dial_timeout:"2s" request_timeout:"3s"`
	// Prefix begins the table's name, which is Prefix + "locks". It has at most 48 characters of
	// [a-z0-9_-.:]. Hosts share their locks if they use the same database and prefix.
	Prefix string `key:"prefix" default:"lockbench_" doc:"of the table's name, PREFIXlocks; hosts with the same one exclude each other"`
	// CreateTable makes the backend create the table when it is missing. Nil means true.
	CreateTable *bool `key:"create_table" default:"true" doc:"create the table when it is missing; else see the ddl command"`
	// Connections is the largest number of connections for statements, 2 to 1000. The backend opens up
	// to five more for withdrawals, for KILL statements, and for signs that this process lives.
	Connections int `key:"connections" default:"16" doc:"the most that are used for statements, 2 to 1000"`
	// WaitConnections is the largest number of connections on which waiters block, at most 1000.
	// Waiters beyond that number poll every 15 to 45 ms. If WaitConnections is negative, all waiters
	// poll.
	WaitConnections int `key:"wait_connections" default:"32" doc:"the most that waiters are blocked on, 0 (none) to 1000; those above it poll"`

	// Logger receives messages that no method returns as an error. Nil means slog.Default().
	Logger *slog.Logger
}

func (o Options) check() error {
	switch {
	case o.Address == "":
		return errors.New("address is missing")
	case len(o.Prefix) > 48 || strings.Trim(o.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789_-.:") != "":
		return errors.New("prefix may have at most 48 of the signs _-.:, digits and lower-case letters")
	case o.Connections < 2 || o.Connections > 1000:
		return fmt.Errorf("connections %d is not between 2 and 1000", o.Connections)
	case o.WaitConnections > 1000:
		return fmt.Errorf("wait_connections %d is above 1000", o.WaitConnections)
	}
	return nil
}

// forced maps parameters of the address to the values that our statements need. For example, the
// server must accept several statements in one text, and count matched rows. An address that sets
// one of these parameters to another value is refused.
var forced = map[string]string{
	"autocommit": "1", "clientFoundRows": "true", "innodb_lock_wait_timeout": "1", "interpolateParams": "true",
	"loc": "UTC", "multiStatements": "true", "parseTime": "false", "sql_mode": "", "time_zone": "'+00:00'",
	"transaction_isolation": "'READ-COMMITTED'", "tx_isolation": "'READ-COMMITTED'", "rejectReadOnly": "",
	"allowAllFiles": "false", "allowFallbackToPlaintext": "false",
}

// leastPacket is the smallest maxAllowedPacket, in bytes, that leaves enough room for a statement.
const leastPacket = 1 << 14

// errAddress does not quote the address, because the address may contain a password.
var errAddress = errors.New("address is not of the form user:password@tcp(host:port)/database?parameter=value")

func (o Options) target() (*mysqldriver.Config, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	cfg, err := mysqldriver.ParseDSN(o.Address)
	if err != nil {
		return nil, errAddress
	}
	if cfg.DBName == "" {
		return nil, errors.New("address names no database: append /NAME")
	}
	if cfg.Net == "tcp" {
		if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
			return nil, errAddress
		}
	}
	if m := cfg.MaxAllowedPacket; m != 0 && m < leastPacket {
		return nil, fmt.Errorf("address sets maxAllowedPacket=%d, and the backend needs at least %d, or 0 for the server's own", m, leastPacket)
	}
	if err := errors.Join(checkParameters(o.Address), o.contradicts(cfg)); err != nil {
		return nil, err
	}
	cfg.User = cmp.Or(o.Username, cfg.User)
	cfg.Params = nil
	cfg.InterpolateParams, cfg.MultiStatements, cfg.ClientFoundRows = true, true, true
	cfg.ParseTime, cfg.Loc, cfg.RejectReadOnly, cfg.CheckConnLiveness = false, time.UTC, false, true
	cfg.Timeout = cmp.Or(cfg.Timeout, o.DialTimeout)
	cfg.ReadTimeout = 0 // every statement has a separate deadline
	return cfg, nil
}

func (o Options) contradicts(cfg *mysqldriver.Config) error {
	says := cfg.TLSConfig // the value of the tls parameter
	switch {
	case o.Username != "" && cfg.User != "" && o.Username != cfg.User:
		return config.Conflict("the address has another", "username")
	case o.Password != "" && cfg.Passwd != "" && o.Password != cfg.Passwd:
		return config.Conflict("the address has another", "password")
	case o.PasswordFile != "" && cfg.Passwd != "":
		return config.Conflict("the address has a password", "address", "password_file")
	case cfg.Net == "unix" && o.Secure():
		return config.Conflict("a unix socket has no TLS", "address", "tls_enabled")
	case says != "" && says != "true" && o.Secure(), says != "" && says != "false" && o.TLSEnabled != nil && !*o.TLSEnabled:
		return config.Conflict("the address says something else about TLS", "tls= in address", "tls_enabled")
	}
	return nil
}

// checkParameters refuses parameters of the address that contradict the forced map. It reads the
// text of the address, because the driver's Config does not say which parameters the user wrote.
func checkParameters(address string) error {
	_, query, _ := strings.Cut(address[strings.LastIndexByte(address, '/')+1:], "?")
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		want, known := forced[key]
		if known && !strings.EqualFold(strings.ReplaceAll(value, "%27", "'"), want) {
			if want == "" {
				return fmt.Errorf("address must not set %s: the backend needs its own value", key)
			}
			return fmt.Errorf("address sets %s, and the backend needs %s=%s", key, key, want)
		}
	}
	return nil
}

// Spec describes the backend to serve.Main and to in-process users.
var Spec = driver.Spec{
	Name: "mysql",
	Doc:  "locks as rows of a table in MySQL 8.4 and later or MariaDB 10.6 and later",
	Keys: config.KeysOf(Options{}),
	Open: func(_ context.Context, cfg driver.Config, log *slog.Logger) (driver.Backend, error) {
		o := optionsOf(cfg)
		o.Logger = log
		return open(o)
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

// properties are what the backend promises before it has reached the server. Fencing becomes
// strict if the server acknowledges a commit only when the commit is on disk.
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
	FirstSpan:      kit.FirstSpan,
	Capabilities:   []driver.Capability{driver.CapWaiter, driver.CapObserver, driver.CapBatcher, driver.CapAdmin},
}

func optionsOf(cfg driver.Config) (o Options) {
	config.Decode(cfg, &o)
	return o
}

// Properties returns what the backend promises, and the server's version and durability if known.
func (b *Backend) Properties() driver.Properties {
	p := properties
	p.Capabilities = slices.Clone(p.Capabilities)
	if s := b.server.Load(); s != nil {
		p.Server, p.Durability = s.Product(), s.Durability()
		if s.Durable() {
			p.Fencing = driver.FencingStrict
		}
	}
	return p
}
