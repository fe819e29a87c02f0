package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// These are the database and the first account of each server
// that this package starts. The account has all rights.
const (
	superuser = "lockbench"
	password  = "lockbench-password"
	database  = "postgres"
)

// Options describe a PostgreSQL server. The zero value commits durably, and listens without TLS.
type Options struct {
	// Args are added after the arguments of this package. They override arguments of the same name.
	Args []string
	// Certificates is a directory with server.pem, server.key and ca.pem. If
	// it is set, accounts must connect by TLS with a certificate that ca.pem
	// has signed. Only the first account may connect without TLS. Default none.
	Certificates string
	// SQL are statements that run at each start of the server, with fresh or with kept data.
	SQL []string
	// Wrap is a command that is put before the server's command and must exec it. Default none.
	Wrap []string
}

// Start starts a server with a fresh data directory, and returns when the server is
// ready. A nil opts means the zero value. The error wraps [servers.ErrNotInstalled]
// if there is no server program. If this process runs as root, the server runs as
// the user postgres, which the packages of PostgreSQL create.
func Start(ctx context.Context, opts *Options) (*servers.Server, error) {
	if opts == nil {
		opts = &Options{}
	}
	program, err := server.Find()
	if err != nil {
		return nil, err
	}
	account, err := accountOf()
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: "postgres",
		Keeps:   true,
		Quit:    syscall.SIGQUIT, // without Quit, Close would send SIGKILL, which leaves shared memory
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			data := filepath.Join(dir, "data")
			if _, err := os.Stat(data); err != nil {
				if err := account.install(ctx, filepath.Dir(program), dir, data); err != nil {
					return nil, err
				}
			}
			argv := slices.Concat(opts.Wrap, account.as(), []string{
				program, "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-c", "unix_socket_directories=",
				"-c", "max_connections=2000", "-c", "dynamic_shared_memory_type=mmap",
			})
			if opts.Certificates != "" {
				argv = append(argv, "-c", "ssl=on", "-c", "ssl_cert_file=server.pem", "-c", "ssl_key_file=server.key", "-c", "ssl_ca_file=ca.pem")
				if err := account.certify(data, opts.Certificates); err != nil {
					return nil, err
				}
			}
			return append(argv, opts.Args...), nil
		},
		Ready: func(ctx context.Context, addr string) error {
			c, err := Dial(ctx, driver.Config{"address": At(addr)})
			if err != nil {
				return err
			}
			for _, statement := range opts.SQL {
				if _, ran := c.Exec(ctx, statement); ran != nil {
					err = errors.Join(err, fmt.Errorf("%s: %w", statement, ran))
				}
			}
			return errors.Join(err, c.Close(ctx))
		},
		Data: []string{"data"},
	})
}

// Address returns the address of a server that [Start] has started, with its account and database.
func Address(s *servers.Server) string { return At(s.Addr()) }

// At is like [Address], but for a server at addr, a host:port.
func At(addr string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s", superuser, password, addr, database)
}

// versions returns Debian's directories of PostgreSQL's programs, newest first, then Homebrew's.
func versions() []string {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // the pattern is valid
	number := func(dir string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return number(b) - number(a) })
	return append(all, "/opt/homebrew/bin")
}

var server = servers.Wanted{Name: "postgres", Debian: "postgresql", Homebrew: "postgresql", After: versions()}

// Program returns the path of the program that [Start] runs, or why it was not found.
func Program() servers.Program {
	path, err := server.Find()
	return servers.Program{Name: server.Name, Path: path, Err: err}
}

// account is the user that the server runs as. A nil *account means the user of this process.
type account struct{ uid, gid int }

// accountOf returns nil if this process is not root. PostgreSQL refuses to run as root.
func accountOf() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("servers: postgres does not run as root: %w", err)
	}
	uid, _ := strconv.Atoi(u.Uid) // uid and gid are numbers on every Unix
	gid, _ := strconv.Atoi(u.Gid)
	return &account{uid, gid}, nil
}

// The as method returns the words to put in front of a command to run it as the account.
func (a *account) as() []string {
	if a == nil {
		return nil
	}
	return []string{"setpriv", fmt.Sprint("--reuid=", a.uid), fmt.Sprint("--regid=", a.gid), "--clear-groups"}
}

func (a *account) give(dir string, files ...string) error {
	if a == nil {
		return nil
	}
	for _, file := range files {
		if err := os.Chown(file, a.uid, a.gid); err != nil {
			return err
		}
	}
	return os.Chmod(dir, 0o711)
}

// install makes the data directory at the path data. It fills a directory with another name and
// renames it at the end, so that an interrupted installation does not look complete.
func (a *account) install(ctx context.Context, bin, dir, data string) error {
	fresh, secret, pidFile := data+".new", data+".password", data+".pid"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return err
	}
	defer os.Remove(secret)
	if err := a.give(dir, fresh, secret); err != nil {
		return err
	}
	argv := append(a.as(), filepath.Join(bin, "initdb"), "-D", fresh, "-U", superuser, "-A", "scram-sha-256",
		"--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync")
	cmd := servers.Command(ctx, dir, pidFile, argv)
	defer os.Remove(pidFile)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return os.Rename(fresh, data)
}

// byTLS is the pg_hba.conf of a server with certificates.
const byTLS = "hostnossl all " + superuser + " all scram-sha-256\nhostssl all all all scram-sha-256 clientcert=verify-ca\n"

// certify copies the files for TLS into the server's data directory. The server accepts only a key
// that its user owns.
func (a *account) certify(data, from string) error {
	files := map[string][]byte{"pg_hba.conf": []byte(byTLS)}
	for _, name := range []string{"server.pem", "server.key", "ca.pem"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		files[name] = text
	}
	for name, text := range files {
		file := filepath.Join(data, name)
		if err := errors.Join(os.WriteFile(file, text, 0o600), a.give(filepath.Dir(data), file)); err != nil {
			return err
		}
	}
	return nil
}

// Certify replaces the certificates of server s with the ones in the directory that from names.
func Certify(ctx context.Context, s *servers.Server, from string) error {
	account, err := accountOf()
	if err != nil {
		return err
	}
	c, err := Dial(ctx, driver.Config{"address": Address(s)})
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	var data string
	if err := c.QueryRow(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if err := account.certify(data, from); err != nil {
		return err
	}
	_, err = c.Exec(ctx, "SELECT pg_reload_conf()")
	return err
}

func Dial(ctx context.Context, cfg driver.Config) (*pgx.Conn, error) {
	c, err := pgx.ParseConfig(cfg["address"])
	if err != nil {
		return nil, errAddress
	}
	fill(c, cfg)
	return pgx.ConnectConfig(ctx, c)
}
