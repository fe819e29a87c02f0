package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver/config"
)

// Connect has the settings of every connection to the server. Parameters in Address and
// ListenAddress of [Options] must not contradict these settings.
type Connect = config.Connect

// Options configure [Open]. Zero fields mean the defaults. The tag of a field
// names its configuration key.
type Options struct {
	// Address is the server and its database, in the form of libpq:
	// "postgres://user:password@db.example:5432/app". If it lists several servers,
	// separated by commas, the first server that accepts writes is used. Required.
	Address string `key:"address" required:"true" secret:"true" doc:"server and database: postgres://user:password@host:port/database; of several hosts the first that can be written to"`
	Connect `dial_timeout:"2s" request_timeout:"3s"`
	// ListenAddress is the address from which the backend receives notices, which tell waiters of
	// grants. It must lead to the same database, but not through a pooler in transaction mode, which
	// loses notices. Empty means Address. If it is "none", waiters get no notices and poll.
	ListenAddress string `key:"listen_address" secret:"true" doc:"another address of the same database, to hear notices from, where the first one leads to a pooler; none: waiters ask"`
	// Prefix precedes each lock's name in the table. It has at most 48 characters of [A-Za-z0-9_-.:].
	// Hosts share their locks if they use the same database and prefix.
	Prefix string `key:"prefix" default:"lockbench_" doc:"of the locks' names; hosts with the same one exclude each other"`
	// CreateSchema makes the backend create the schema lockbench when it is missing. Nil means
	// true.
	CreateSchema *bool `key:"create_schema" default:"true" doc:"create the schema lockbench when it is missing; else see the ddl command"`
	// Connections is the largest number of connections for requests, from 2 to 1000.
	// One more connection receives the notices that tell waiters of grants.
	Connections int `key:"connections" default:"16" doc:"the most that are used at a time, 2 to 1000; one more listens"`

	// Logger receives messages that no method returns as an error. Nil means slog.Default().
	Logger *slog.Logger
}

// noListening is the ListenAddress that makes waiters poll.
const noListening = "none"

func (o Options) check() error {
	switch {
	case o.Address == "":
		return errors.New("address is missing")
	case len(o.Prefix) > 48 || strings.Trim(o.Prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:") != "":
		return errors.New("prefix may have at most 48 of the signs _-.:, digits and letters")
	case o.Connections < 2 || o.Connections > 1000:
		return fmt.Errorf("connections %d is not between 2 and 1000", o.Connections)
	}
	return nil
}

// session has the settings that our statements need. Each connection sets them, and so overrides
// the settings of the role and the database. A pooler may refuse them; see Backend.connection.
var session = map[string]string{
	"default_transaction_isolation": "read committed",
	"statement_timeout":             "30s", // so that no statement outlasts a withdrawal's tombstone
	"idle_session_timeout":          "0",
	"client_encoding":               "UTF8",
}

// target parses the address that is the value of the given configuration key. Its errors do not
// quote the address, because the address may contain a password.
func (o Options) target(key, address string) (*pgxpool.Config, *config.Source, error) {
	bad := fmt.Errorf("%s is not of the form postgres://user:password@host:port/database?parameter=value", key)
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Host == "" {
		return nil, nil, bad
	}
	query := u.Query()
	mode := query.Get("sslmode")
	for name := range query {
		if strings.HasPrefix(name, "ssl") && name != "sslmode" {
			return nil, nil, fmt.Errorf("%s has %s: use the keys tls_ca_file, tls_cert_file and tls_key_file", key, name)
		}
	}
	if mode != "" && mode != "disable" && mode != "verify-full" {
		// Note: the modes prefer and require are refused, because they accept any certificate.
		return nil, nil, fmt.Errorf("%s has another sslmode than disable and verify-full; tls_insecure accepts any certificate", key)
	}
	query.Set("sslmode", "disable") // TLS is set up from the configuration keys instead
	u.RawQuery = query.Encode()
	c, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, nil, bad
	}
	if c.ConnConfig.Database == "" {
		return nil, nil, fmt.Errorf("%s names no database: append /NAME", key)
	}
	_, written := u.User.Password()
	switch {
	case o.Username != "" && u.User.Username() != "" && o.Username != u.User.Username():
		return nil, nil, config.Conflict("the address has another", "username")
	case written && o.HasPassword():
		return nil, nil, config.Conflict("the address has a password", key, "password")
	case mode == "disable" && o.Secure():
		return nil, nil, config.Conflict("the address says something else about TLS", "sslmode= in "+key, "tls_enabled")
	}
	source, err := config.NewSource(o.Connect, mode == "verify-full", o.Logger)
	if err != nil {
		return nil, nil, err
	}
	o.fill(c, source)
	return c, source, nil
}

// fill writes the options into c. Each new connection reads the password and certificates again.
func (o Options) fill(c *pgxpool.Config, source *config.Source) {
	c.MaxConns = int32(o.Connections)
	c.MinIdleConns = 1
	c.MaxConnIdleTime, c.PingTimeout = time.Minute, pingTimeout
	own := c.ConnConfig
	own.ConnectTimeout = o.DialTimeout
	own.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	if o.Username != "" {
		own.User = o.Username
	}
	own.RuntimeParams["application_name"] = "lockbench"
	for key, value := range session {
		own.RuntimeParams[key] = value
	}
	c.BeforeConnect = func(_ context.Context, fresh *pgx.ConnConfig) error {
		if o.HasPassword() {
			fresh.Password = source.Password()
		}
		if source.Secure() {
			secure := func(host string) *tls.Config { return source.TLSConfig(host) }
			fresh.TLSConfig = secure(fresh.Host)
			for _, f := range fresh.Fallbacks {
				f.TLSConfig = secure(f.Host)
			}
		}
		return nil
	}
}

// pingTimeout limits the ping before each use of a connection that was idle for over a second.
const pingTimeout = 500 * time.Millisecond
