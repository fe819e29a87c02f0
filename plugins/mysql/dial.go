package mysql

import (
	"context"
	"crypto/fips140"
	sqldriver "database/sql/driver"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// connector returns a connector to the database that the address names. The connector reads the
// password and the certificates again for each connection.
func (o Options) connector() (c sqldriver.Connector, database string, err error) {
	cfg, err := o.target()
	if err != nil {
		return nil, "", err
	}
	source, err := config.NewSource(o.Connect, cfg.TLSConfig == "true", o.Logger)
	if err != nil {
		return nil, "", err
	}
	host, _, _ := net.SplitHostPort(cfg.Addr)
	cfg.Logger = quiet{o.Logger}
	cfg.DialFunc = conn.Dial
	most := cfg.MaxAllowedPacket
	cfg.MaxAllowedPacket = 1 << 30 // the most that any server takes; the session checks the limit
	err = cfg.Apply(mysqldriver.BeforeConnect(func(ctx context.Context, own *mysqldriver.Config) error {
		if o.HasPassword() {
			own.Passwd = source.Password()
		}
		if source.Secure() {
			own.TLS = source.TLSConfig(host)
		}
		if fips140.Enforced() && own.Passwd != "" {
			own.AllowNativePasswords = false // native passwords need SHA-1, which panics in FIPS mode
		}
		conn.Limit(ctx, most)
		if l := conn.Logger(ctx); l != nil {
			own.Logger = l
		}
		return nil
	}))
	if err != nil {
		return nil, "", err
	}
	if c, err = mysqldriver.NewConnector(cfg); err != nil {
		return nil, "", errAddress
	}
	return c, cfg.DBName, nil
}

// quiet logs the driver's messages about broken connections at level debug, because the error of
// the statement contains them too.
type quiet struct{ log *slog.Logger }

func (q quiet) Print(v ...any) { q.log.Debug("mysql driver", "says", fmt.Sprint(v...)) }

const (
	// While dials lead to a server other than the one in use, these limit the pauses between dials.
	redialFrom, redialTo = 10 * time.Millisecond, 100 * time.Millisecond
	// If a dial led to another server, link.dial tries again until dial_timeout/redialShares is over.
	redialShares = 2
)

// dial returns a function that connects to the same server as the other connections. If the address
// leads to several servers, the function dials repeatedly for a while to reach that server.
func (k *link) dial(connector sqldriver.Connector, setup string) func() (*conn.Session, error) {
	return func() (*conn.Session, error) {
		ctx, cancel := context.WithTimeout(k.background, k.opts.DialTimeout)
		defer cancel()
		end := time.Now().Add(k.opts.DialTimeout / redialShares)
		for pause := redialFrom; ; pause = min(2*pause, redialTo) {
			s, err := conn.Open(ctx, connector, setup)
			if err != nil {
				return nil, err
			}
			if err = k.admit(s); err == nil {
				return s, nil
			}
			s.Close()
			if time.Now().Add(pause).After(end) {
				return nil, err
			}
			select {
			case <-time.After(pause/2 + rand.N(pause/2)):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
}

// admit refuses a connection to another server, or to another node of the same Galera cluster,
// while the server in use serves requests. The nodes share their rows, but a node gets the changes
// of other nodes late, and a release wakes only waiters on its own node.
func (k *link) admit(s *conn.Session) error {
	if err := k.cluster.Admit(s.Server.Cluster, k.serves); err != nil {
		return err
	}
	others := func() bool { return s.Server.Cluster != s.Server.ID && k.serves() }
	if err := k.node.Admit(s.Server.ID, others); err != nil {
		return conn.NotSent(fmt.Errorf("the address leads to %s, another node of the cluster than the one in use, %s", s.Server.ID, k.node.Current()))
	}
	k.server.Store(&s.Server)
	k.admitted.Store(new(time.Now()))
	if err := s.Server.NoLocks; err != nil && k.opts.WaitConnections > 0 {
		k.noLocks.Do(func() { k.opts.Logger.Warn("mysql: the server refuses GET_LOCK, so that waiters poll", "err", err) })
	}
	return nil
}

// serves reports whether the server in use serves requests. A connection that was admitted in the
// last 100 ms proves this, even if it is not in a pool yet.
func (k *link) serves() bool {
	if at := k.admitted.Load(); at != nil && time.Since(*at) < redialTo {
		return true
	}
	return k.pool.Serves() || k.waits.Serves()
}

func (k *link) stale(s *conn.Session) bool { return s.Server.ID != k.node.Current() }
