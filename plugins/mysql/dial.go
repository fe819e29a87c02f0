package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"fmt"
	"log/slog"
	"net"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/plugins/internal/config"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// connector makes connections, each with the password and the certificates of
// that moment, to the database that the address names.
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
	cfg.DialFunc = conn.Greeted
	err = cfg.Apply(mysqldriver.BeforeConnect(func(ctx context.Context, own *mysqldriver.Config) error {
		if o.HasPassword() {
			own.Passwd = source.Password()
		}
		if source.Secure() {
			own.TLS = source.TLSConfig(host)
		}
		if l := conn.Logger(ctx, own.TLS != nil); l != nil {
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

// quiet takes what the driver has to say about broken connections, which the
// error of the statement says too.
type quiet struct{ log *slog.Logger }

// Print implements the driver's Logger.
func (q quiet) Print(v ...any) { q.log.Debug("mysql driver", "says", fmt.Sprint(v...)) }
