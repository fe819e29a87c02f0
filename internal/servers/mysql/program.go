package mysql

import (
	"bytes"
	"context"
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

// findMySQL finds the program that speaks MySQL's protocol.
func findMySQL() (*mysqlProgram, error) {
	if own := os.Getenv("LOCKBENCH_MYSQLD"); own != "" {
		binary, err := exec.LookPath(own)
		if err != nil {
			return nil, fmt.Errorf("LOCKBENCH_MYSQLD: %w", err)
		}
		return mysqld(binary), nil
	}
	binary, err := findDatabase("mariadbd")
	if err != nil {
		if binary, mysqlErr := findDatabase("mysqld"); mysqlErr == nil {
			return mysqld(binary), nil
		}
		return nil, err
	}
	install, err := findDatabase("mariadb-install-db")
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

// findDatabase looks where Debian keeps servers too, where an ordinary user's
// PATH does not lead.
func findDatabase(program string) (string, error) {
	path, err := servers.Find(program, "mariadb-server", "mariadb")
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/opt/homebrew/bin"} {
		if path, lookErr := exec.LookPath(filepath.Join(dir, program)); lookErr == nil {
			return path, nil
		}
	}
	return "", err
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
