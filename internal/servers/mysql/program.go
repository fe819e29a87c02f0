package mysql

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/lockbench/lockbench/internal/servers"
)

// mysqlProgram is what differs between MariaDB and MySQL in starting one.
type mysqlProgram struct {
	product string
	binary  string
	// tables is the command that fills a new data directory, without its name.
	tables []string
}

// The programs, also where Debian keeps servers and an ordinary user's PATH does
// not lead.
var (
	sbin    = []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"}
	mariadb = servers.Wanted{Name: "mariadbd", Debian: "mariadb-server", Homebrew: "mariadb", After: sbin}
	tables  = servers.Wanted{Name: "mariadb-install-db", Debian: "mariadb-server", Homebrew: "mariadb", After: sbin}
	mysql   = servers.Wanted{Name: "mysqld", Variable: "LOCKBENCH_MYSQLD", After: sbin}
)

// findMySQL finds the program that speaks MySQL's protocol: mysqld if that is named,
// or there is no other.
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

// Program looks for the server that [Start] starts.
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

// install fills data with the system tables. It works in a directory beside it,
// so that one that was interrupted is not taken for a complete one.
func (p *mysqlProgram) install(ctx context.Context, data string) error {
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	argv := append(append(append([]string(nil), p.tables...), "--datadir="+fresh), asRoot()...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	// One that starts removes the temporary tables of others from their directory.
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(data))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, bytes.TrimSpace(out))
	}
	return os.Rename(fresh, data)
}

// args are the arguments that only this program takes.
func (p *mysqlProgram) args(dir string) []string {
	if p.product == "mysqld" {
		// The second protocol would listen on a port of its own for everybody.
		// Packages name a directory for files that only their own account enters.
		return []string{"--mysqlx=OFF", "--disable-log-bin", "--secure-file-priv=NULL", "--pid-file=" + filepath.Join(dir, "pid")}
	}
	return []string{"--innodb-log-file-size=16M"}
}

// asRoot is the argument without which these servers refuse to run as root.
func asRoot() []string {
	if os.Geteuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}
