// Package postgres starts PostgreSQL servers, and changes or breaks them as operators do.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// Kind is one PostgreSQL server.
var Kind = &servers.Kind{
	Name:     "postgres",
	Lacks:    servers.OneSQLServer,
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}},
	Synced: []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on", "synchronous_commit=local",
		"synchronous_commit=remote_write", "synchronous_commit=remote_apply"},

	Prepare:    prepare,
	Operations: operations,
	Launch: func(ctx context.Context, _ bool) (servers.Nodes, error) {
		s, err := Start(ctx, nil)
		return servers.Nodes{s}, err
	},
	Services: []string{"postgres"},
	Address:  func(at []string) string { return At(at[0]) },
	HostIn:   regexp.MustCompile(`^postgres(?:ql)?://(?:[^/@]*@)?([^/?,@]+)(?:[/?]|$)`),
	Remove:   remove,
	Program:  server.Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return err
	}
	if a, err := accountOf(); len(wrap) > 0 && err == nil && a != nil {
		// Root owns the files of the clock, but the server runs as another user.
		if err := letIn(a, w.Dir, wrap); err != nil {
			return err
		}
	}
	one, err := Start(ctx, &Options{Wrap: wrap, SQL: plainUser})
	if err != nil {
		return err
	}
	e.Servers = servers.Nodes{one}
	if e.Login = "postgres://" + servers.HostUser; e.PasswordFile == "" {
		e.Login += ":" + servers.HostPassword
	}
	admin, err := open(driver.Config{"address": Address(one)})
	if err == nil {
		e.Product = &store{servers.NewSQL(servers.SQL{Environment: e, Admin: admin, Absent: absent, Ends: []string{"ROLLBACK"}})}
	}
	return err
}

// letIn makes the account the owner of the files that wrap, an "env" command, has in variables. It
// also lets the account enter the directory dir and its parents, but only below os.TempDir.
func letIn(a *account, dir string, wrap []string) error {
	var files []string
	for _, word := range wrap {
		if at := regexp.MustCompile(`^[A-Z_]+=(/.*)$`).FindStringSubmatch(word); at != nil {
			files = append(files, at[1])
		}
	}
	for top := filepath.Clean(os.TempDir()) + "/"; strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
		if err := a.give(dir, files...); err != nil {
			return err
		}
	}
	return nil
}

// plainUser has the statement that makes the hosts' account, which has few rights. It runs at each
// start, even of a read-only server, so it does nothing if the account exists.
var plainUser = []string{"DO $$ BEGIN IF to_regrole('" + servers.HostUser + "') IS NULL THEN" +
	" CREATE ROLE " + servers.HostUser + " LOGIN PASSWORD '" + servers.HostPassword + "';" +
	" GRANT CREATE ON DATABASE " + database + " TO " + servers.HostUser + ";" +
	" END IF; END $$"}

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
	opts = cmp.Or(opts, &Options{})
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
			if err := servers.Install(ctx, data, account.initdb(filepath.Dir(program))); err != nil {
				return nil, err
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
		Ready: serves(opts.SQL...),
		Data:  []string{"data"},
	})
}

// serves returns a function for [servers.Recipe].Ready, which also runs statements.
func serves(statements ...string) func(ctx context.Context, addr string) error {
	return func(ctx context.Context, addr string) error {
		db, err := open(driver.Config{"address": At(addr)})
		if err != nil {
			return err
		}
		defer db.Close()
		if err := db.PingContext(ctx); err != nil {
			return err
		}
		return servers.Exec(ctx, db, statements...)
	}
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

// initdb returns a function for [servers.Install], which makes the data directory. The command
// needs an empty directory, and a file with the password of the first account.
func (a *account) initdb(bin string) func(data string) ([]string, error) {
	return func(data string) ([]string, error) {
		secret := data + ".password"
		err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(secret, []byte(password), 0o600), a.give(filepath.Dir(data), data, secret))
		return append(a.as(), filepath.Join(bin, "initdb"), "-D", data, "-U", superuser, "-A", "scram-sha-256",
			"--pwfile", secret, "-E", "UTF8", "--locale", "C", "--no-sync"), err
	}
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

var pgbouncer = servers.Wanted{Name: "pgbouncer", Debian: "pgbouncer", Homebrew: "pgbouncer", After: []string{"/usr/sbin"}}

// StartPooler starts the connection pooler PgBouncer in transaction mode in front of the
// server s. In this mode, a connection to s may serve another client after each transaction.
// PgBouncer logs in to s with the account of [Start], whatever account a client uses.
func StartPooler(ctx context.Context, s *servers.Server) (*servers.Server, error) {
	program, err := pgbouncer.Find()
	if err != nil {
		return nil, err
	}
	account, err := accountOf()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return nil, err
	}
	return servers.Launch(ctx, servers.Recipe{
		Product: "pgbouncer",
		Prepare: func(dir string, own int, _ bool) ([]string, error) {
			file := filepath.Join(dir, "pgbouncer.ini")
			text := fmt.Sprintf("[databases]\n%s = host=%s port=%s user=%s password=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
				"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 500\nserver_login_retry = 1\n",
				database, host, port, superuser, password, own)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				return nil, err
			}
			return slices.Concat(account.as(), []string{program, file}), account.give(dir, file)
		},
		Ready: serves(),
	})
}
