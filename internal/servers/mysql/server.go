package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/internal/servers"
)

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
	if opts == nil {
		opts = &Options{}
	}
	o := *opts
	program, err := findMySQL()
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: program.product,
		Keeps:   true,
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			data := filepath.Join(dir, "data")
			if _, err := os.Stat(data); err != nil {
				if err := program.install(ctx, data); err != nil {
					return nil, err
				}
			}
			init := filepath.Join(dir, "init.sql")
			argv := append(append([]string(nil), o.Wrap...), program.binary)
			argv = append(argv, o.args(dir, data, init, port)...)
			argv = append(argv, program.args(dir)...)
			return append(argv, o.Args...), os.WriteFile(init, o.initSQL(), 0o600)
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
		if otherErr == nil {
			return mysqld(other), nil
		}
		if errors.Is(otherErr, servers.ErrNotInstalled) {
			return nil, err
		}
		return nil, otherErr
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

func mysqld(binary string) *mysqlProgram {
	return &mysqlProgram{product: "mysqld", binary: binary, tables: []string{
		binary, "--no-defaults", "--initialize-insecure", "--innodb-flush-log-at-trx-commit=0",
	}}
}

// install writes the system tables into the new directory data. It fills a directory with another
// name, and renames it at the end, so that an interrupted installation does not look complete.
func (p *mysqlProgram) install(ctx context.Context, data string) error {
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	argv := append(append(append([]string(nil), p.tables...), "--datadir="+fresh), asRoot()...)
	dir, pidFile := filepath.Dir(data), fresh+".pid"
	cmd := servers.Command(ctx, dir, pidFile, argv)
	defer os.Remove(pidFile)
	// In a shared TMPDIR, a server that starts would remove the temporary tables of other servers.
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, bytes.TrimSpace(out))
	}
	return os.Rename(fresh, data)
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
