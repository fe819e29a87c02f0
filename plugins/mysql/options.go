package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
)

// Options configure [Open]. Zero fields mean the documented defaults.
type Options struct {
	// Address of the server and its database, as github.com/go-sql-driver/mysql
	// writes it: "user:password@tcp(db.example:3306)/app". Required.
	Address string
	// Username and Password replace those in Address when they are not empty.
	Username, Password string
	// Prefix of the table's name, which is Prefix + "locks": at most 48 of
	// [a-z0-9_-.:]. Hosts exclude each other when they use the same database
	// and prefix. Default "lockbench_".
	Prefix string
	// KeepSchema leaves the table to be created by hand. Default: it is created
	// when it is missed.
	KeepSchema bool
	// Connections is the most that are used for statements at a time, 2 to
	// 1000. Statements that end other statements may go beyond it. Default 16.
	Connections int
	// WaitConnections is the most that waiters are blocked on, 0 to 1000: those
	// above it ask every few milliseconds. Default 32. Negative: none.
	WaitConnections int
	// Timeout of a connection attempt and of one statement, 100 ms to 1 min.
	// Default 3s.
	Timeout time.Duration
	// TLS of connections to the server. Nil: what Address says with tls=, else
	// none.
	TLS *tls.Config
	// Logger for what no caller can be told. Default slog.Default().
	Logger *slog.Logger
}

const (
	defaultPrefix          = "lockbench_"
	defaultConnections     = 16
	defaultWaitConnections = 32
	defaultTimeout         = 3 * time.Second
)

// check fills in defaults and returns the first value that cannot work.
func (o Options) check() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if o.Connections == 0 {
		o.Connections = defaultConnections
	}
	if o.WaitConnections == 0 {
		o.WaitConnections = defaultWaitConnections
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch {
	case o.Address == "":
		return o, errors.New("address is missing")
	case len(o.Prefix) > 48 || strings.Trim(o.Prefix, "abcdefghijklmnopqrstuvwxyz0123456789_-.:") != "":
		return o, errors.New("prefix is not at most 48 of lower-case letters, digits and the signs _-.: in any order")
	case o.Connections < 2 || o.Connections > 1000:
		return o, fmt.Errorf("connections %d is not 2 to 1000", o.Connections)
	case o.WaitConnections > 1000:
		return o, fmt.Errorf("wait_connections %d is above 1000", o.WaitConnections)
	case o.Timeout < 100*time.Millisecond || o.Timeout > time.Minute:
		return o, fmt.Errorf("timeout %v is not 100ms to 1m", o.Timeout)
	}
	return o, nil
}

// forced are parameters of the address that this package sets itself, with the
// only values that are accepted for them. What a text contains is decided by
// the statements here, which count matched rows, and send several at a time.
var forced = map[string]string{
	"autocommit": "1", "clientFoundRows": "true", "innodb_lock_wait_timeout": "1", "interpolateParams": "true",
	"loc": "UTC", "multiStatements": "true", "parseTime": "false", "sql_mode": "", "time_zone": "'+00:00'",
	"transaction_isolation": "'READ-COMMITTED'", "tx_isolation": "'READ-COMMITTED'", "rejectReadOnly": "",
	"allowAllFiles": "false", "allowFallbackToPlaintext": "false",
}

// errAddress never quotes the address: it may contain a password.
var errAddress = errors.New("address is not of the form user:password@tcp(host:port)/database?parameter=value")

// dialer returns the driver's configuration for the address in o.
func (o Options) dialer() (*mysqldriver.Config, error) {
	cfg, err := mysqldriver.ParseDSN(o.Address)
	if err != nil {
		return nil, errAddress
	}
	if cfg.DBName == "" {
		return nil, errors.New("address names no database: it ends in /database")
	}
	if cfg.Net == "tcp" {
		if _, _, err := net.SplitHostPort(cfg.Addr); err != nil {
			return nil, errAddress
		}
	}
	if err := checkParameters(o.Address); err != nil {
		return nil, err
	}
	if o.Username != "" {
		cfg.User = o.Username
	}
	if o.Password != "" {
		cfg.Passwd = o.Password
	}
	if o.TLS != nil {
		cfg.TLS, cfg.TLSConfig = o.TLS.Clone(), ""
		if cfg.TLS.ServerName == "" && !cfg.TLS.InsecureSkipVerify {
			cfg.TLS.ServerName, _, _ = net.SplitHostPort(cfg.Addr)
		}
	}
	cfg.Params = nil
	cfg.InterpolateParams, cfg.MultiStatements, cfg.ClientFoundRows = true, true, true
	cfg.ParseTime, cfg.Loc, cfg.RejectReadOnly, cfg.CheckConnLiveness = false, time.UTC, false, true
	if cfg.Timeout == 0 {
		cfg.Timeout = o.Timeout
	}
	cfg.ReadTimeout = 0 // every statement has a deadline of its own
	cfg.Logger = quiet{o.Logger}
	return cfg, nil
}

// checkParameters refuses parameters that contradict what is forced. The
// driver's Config no longer tells what was written.
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

// tlsConfig builds the TLS configuration from the keys of the configuration.
func tlsConfig(cfg driver.Config) (*tls.Config, error) {
	files := cfg["tls_ca_file"] + cfg["tls_cert_file"] + cfg["tls_key_file"] + cfg["tls_server_name"]
	if !cfg.Bool("tls_enabled") {
		if files != "" || cfg.Bool("tls_insecure") {
			return nil, errors.New("tls_ca_file, tls_cert_file, tls_key_file, tls_server_name and tls_insecure need tls_enabled=true")
		}
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg["tls_server_name"], InsecureSkipVerify: cfg.Bool("tls_insecure")}
	if file := cfg["tls_ca_file"]; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("tls_ca_file: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls_ca_file: %s holds no PEM certificate", file)
		}
	}
	if cfg["tls_cert_file"] != "" || cfg["tls_key_file"] != "" {
		pair, err := tls.LoadX509KeyPair(cfg["tls_cert_file"], cfg["tls_key_file"])
		if err != nil {
			return nil, fmt.Errorf("tls_cert_file and tls_key_file: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// quiet takes what the driver has to say about broken connections, which the
// error of the statement says too.
type quiet struct{ log *slog.Logger }

func (q quiet) Print(v ...any) { q.log.Debug("mysql driver", "says", fmt.Sprint(v...)) }
