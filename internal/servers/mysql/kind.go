// Package mysql starts MariaDB or MySQL servers, and changes or breaks them as
// operators do.
package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/internal/servers"
)

var Kind = &servers.Kind{
	Name:     "mysql",
	Lacks:    servers.OneSQLServer,
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}, {Name: servers.WithReplica, Servers: 1, Copied: true}},

	Synced:     []string{"innodb_flush_log_at_trx_commit=1", "sync_binlog=1"},
	Prepare:    prepare,
	Operations: append(operations, failovers...),
	Launch: func(ctx context.Context, _ bool) (servers.Nodes, error) {
		s, err := Start(ctx, nil)
		return servers.Nodes{s}, err
	},
	Services: []string{"mysql"},
	Address:  func(at []string) string { return At(at[0]) },
	HostIn:   regexp.MustCompile(`@tcp\(([^()]*)\)`), // in the format of go-sql-driver/mysql
	Counter:  count,
	Remove:   remove,
	Program:  Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	server, err := start(ctx, e, w)
	if err != nil {
		return err
	}
	e.Servers = servers.Nodes{server}
	if e.Login = servers.HostUser; e.PasswordFile == "" {
		e.Login += ":" + servers.HostPassword
	}
	s, err := newStore(ctx, e)
	if err != nil {
		return err
	}
	e.Product = s
	if w.Setting == servers.WithReplica {
		return s.startReplica(ctx, w)
	}
	return nil
}

// start starts a server. With the setting WithReplica, the server can become master or replica.
func start(ctx context.Context, e *servers.Environment, w servers.Requirements) (*servers.Server, error) {
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return nil, err
	}
	o := &Options{Wrap: wrap, SQL: plainUser}
	if w.Setting == servers.WithReplica {
		if os.Getenv("LOCKBENCH_MYSQLD") != "" { // MySQL has other statements for replication
			return nil, &servers.NotInstalledError{Program: "mariadbd", Debian: "mariadb-server", Homebrew: "mariadb"}
		}
		o.Args = []string{"--log-bin", fmt.Sprintf("--server-id=%d", 1+len(e.Servers))}
	}
	return Start(ctx, o)
}

// plainUser has the statements that make the hosts' account. Unlike the server's first account,
// this account may not write while the server is read-only.
var plainUser = []string{
	"DROP USER IF EXISTS " + sqlUser,
	"CREATE USER " + sqlUser + " IDENTIFIED BY '" + servers.HostPassword + "'",
	"GRANT ALL ON lockbench.* TO " + sqlUser,
	"GRANT PROCESS ON *.* TO " + sqlUser,
}

const sqlUser = "'" + servers.HostUser + "'@'%'"

// These are the database and the first account of each server
// that this package starts. The account has all rights.
const (
	mariaUser     = "lockbench"
	mariaPassword = "lockbench-password"
	mariaDatabase = "lockbench"
)

// Options describe a MariaDB server. The zero value commits durably,
// keeps no binary log, and listens without TLS.
type Options struct {
	// Relaxed makes the server write its log to disk only about once a second
	// (innodb_flush_log_at_trx_commit=0). The default writes it at every commit.
	Relaxed bool
	// Args are added after the arguments of this package. They override arguments of the same name.
	Args []string
	// SQL are further statements to run at each start, one in each string.
	SQL []string
	// Wrap is a command to put in front of the server's command, such as "env"
	// with variables. It must run the server's command by exec. Default none.
	Wrap []string
}

// Start starts a server with a fresh data directory, an account and an empty database, and returns
// when the server is ready. A nil opts means the zero value. Start uses the program that the
// environment variable LOCKBENCH_MYSQLD names. If the variable is not set, Start uses mariadbd or,
// if that is missing, mysqld. If no program is found, the error wraps [servers.ErrNotInstalled].
func Start(ctx context.Context, opts *Options) (*servers.Server, error) {
	o := *cmp.Or(opts, &Options{})
	program, err := findMySQL()
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: program.product,
		Keeps:   true,
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			data := filepath.Join(dir, "data")
			if err := servers.Install(ctx, data, program.install); err != nil {
				return nil, err
			}
			init := filepath.Join(dir, "init.sql")
			argv := slices.Concat(o.Wrap, []string{program.binary}, o.args(dir, data, init, port), program.args(dir), o.Args)
			return argv, os.WriteFile(init, o.initSQL(), 0o600)
		},
		Ready: greets,
		Data:  []string{"data"},
	})
}

// Address returns the address of a server that [Start] has started, with account
// and database, in the form of go-sql-driver/mysql.
func Address(s *servers.Server) string { return At(s.Addr()) }

// At is like [Address], but for a server at addr, a host:port.
func At(addr string) string {
	return fmt.Sprintf("%s:%s@tcp(%s)/%s", mariaUser, mariaPassword, addr, mariaDatabase)
}

func (o Options) args(dir, data, init string, port int) []string {
	flush := "1"
	if o.Relaxed {
		flush = "0"
	}
	args := []string{
		"--no-defaults",
		"--datadir=" + data,
		"--tmpdir=" + dir,
		"--socket=" + filepath.Join(dir, "sock"),
		"--bind-address=127.0.0.1",
		"--port=" + strconv.Itoa(port),
		"--init-file=" + init,
		"--skip-name-resolve",
		"--max-connections=1000",
		"--innodb-buffer-pool-size=64M",
		"--innodb-flush-log-at-trx-commit=" + flush,
		"--loose-innodb-fast-shutdown=2",
	}
	return append(args, asRoot()...)
}

func (o Options) initSQL() []byte {
	account := fmt.Sprintf("'%s'@'%%'", mariaUser)
	lines := append([]string{
		"CREATE DATABASE IF NOT EXISTS " + mariaDatabase,
		fmt.Sprintf("CREATE USER IF NOT EXISTS %s IDENTIFIED BY '%s'", account, mariaPassword),
		fmt.Sprintf("GRANT ALL ON *.* TO %s WITH GRANT OPTION", account),
	}, o.SQL...)
	return []byte(strings.Join(lines, ";\n") + ";\n")
}

// greets reports whether the server is ready. A server greets clients after it has run its init
// file. The greeting begins with 3 bytes of length, 1 byte of sequence and the protocol version,
// 10. A server that refuses the client sends 255 in place of the version.
var greets = servers.Answers("", func(reply string) bool { return reply[4] == 10 })

type mysqlProgram struct {
	product string
	binary  string
	// tables is the command that fills a new data directory. The caller adds the directory.
	tables []string
}

// These are the programs that this package looks for. An ordinary user's PATH may lack the
// directories in sbin.
var (
	sbin    = []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}
	mariadb = servers.Wanted{Name: "mariadbd", Debian: "mariadb-server", Homebrew: "mariadb", After: sbin}
	tables  = servers.Wanted{Name: "mariadb-install-db", Debian: "mariadb-server", Homebrew: "mariadb", After: sbin}
	mysql   = servers.Wanted{Name: "mysqld", Variable: "LOCKBENCH_MYSQLD", After: sbin}
)

// findMySQL uses the mysqld that LOCKBENCH_MYSQLD names. If the variable is not set, it looks for
// mariadbd, and for mysqld only if there is no mariadbd.
func findMySQL() (*mysqlProgram, error) {
	binary, err := mariadb.Find()
	if err != nil || os.Getenv(mysql.Variable) != "" {
		other, otherErr := mysql.Find()
		switch {
		case errors.Is(otherErr, servers.ErrNotInstalled):
			return nil, err
		case otherErr != nil:
			return nil, otherErr
		}
		return &mysqlProgram{product: "mysqld", binary: other, tables: []string{
			other, "--no-defaults", "--initialize-insecure", "--innodb-flush-log-at-trx-commit=0",
		}}, nil
	}
	install, err := tables.Find()
	if err != nil {
		return nil, err
	}
	return &mysqlProgram{product: "mariadbd", binary: binary, tables: []string{
		install, "--no-defaults", "--auth-root-authentication-method=normal",
		"--skip-test-db", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=0", "--innodb-log-file-size=16M",
	}}, nil
}

// Program returns the path of the program that [Start] runs, or why it was not found.
func Program() servers.Program {
	found, err := findMySQL()
	if err != nil {
		return servers.Program{Name: "mariadbd or mysqld", Err: err}
	}
	return servers.Program{Name: found.product, Path: found.binary}
}

// install returns the command that writes the system tables into the new directory data.
func (p *mysqlProgram) install(data string) ([]string, error) {
	return slices.Concat(p.tables, []string{"--datadir=" + data}, asRoot()), nil
}

func (p *mysqlProgram) args(dir string) []string {
	if p.product == "mysqld" {
		// mysqlx=ON would open a second port on all interfaces. By default, packages set secure-file-priv
		// to a directory that only the package's account may enter.
		return []string{"--mysqlx=OFF", "--disable-log-bin", "--secure-file-priv=NULL", "--pid-file=" + filepath.Join(dir, "pid")}
	}
	return []string{"--innodb-log-file-size=16M"}
}

// asRoot returns the argument that a server needs to run as root, if this process runs as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
