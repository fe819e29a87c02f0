package mysql

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/internal/servers"
)

// The account and database that a MariaDB server of this package begins with.
// The account may do everything.
const (
	mariaUser     = "lockbench"
	mariaPassword = "lockbench-password"
	mariaDatabase = "lockbench"
)

// Options describe a MariaDB server. The zero value commits durably,
// keeps no binary log, and listens without TLS.
type Options struct {
	// Relaxed leaves writing the log to the operating system for up to a second
	// (innodb_flush_log_at_trx_commit=0). Default: every commit is on disk.
	Relaxed bool
	// Args are further arguments of mariadbd, after ours: the last one counts.
	Args []string
	// SQL are further statements to run at each start, one in each string.
	SQL []string
	// Wrap is a command in front of the server's, which it must exec: "env"
	// with variables for one. Default none.
	Wrap []string
}

// Start starts a server with a fresh data directory, an account and an
// empty database, and returns when it answers. A nil opts is the zero value.
// Where there is no mariadbd it takes mysqld, and where the environment variable
// LOCKBENCH_MYSQLD names one, always that. The error wraps [ErrNotInstalled]
// when there is neither.
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

// Address is the address of a server from [Start] in the form of
// go-sql-driver/mysql, with account and database.
func Address(s *servers.Server) string { return At(s.Addr()) }

// At is [Address] of a server at host:port.
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

// greets is ready's answer: the server speaks first, once its init file
// was run. Its greeting begins with 3 bytes of length, 1 of sequence and the protocol
// version 10, a refusal with 255.
var greets = servers.Answers("", func(reply string) bool { return reply[4] == 10 })
