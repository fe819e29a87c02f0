package postgres_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// role is who the tests log in as, with a password of their own.
const role = "lockbench"

var password = rand.Text()

// cluster is a PostgreSQL server that a test has started.
type cluster struct {
	plugintest.Server
	bin, dir string              // of the programs, and of all that the server writes
	account  *syscall.Credential // nil for that of the test
	port     int
}

// start starts a server, which the test's end stops. PostgreSQL does not run as
// root: a test of root's starts it as the user that the package has made.
func start(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{bin: programs(t), port: plugintest.Port(t)}
	var err error
	if c.dir, err = os.MkdirTemp("", "postgres-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(c.dir) })
	if err := os.WriteFile(c.secret(), []byte(password), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		c.account = c.giveAway(t, "postgres")
	}
	c.Server = plugintest.Server{
		Command: func() *exec.Cmd {
			return c.command("postgres", "-D", c.data(), "-k", c.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(c.port), "-c", "max_connections=300")
		},
		Ready: func(ctx context.Context) error {
			conn, err := c.connect(ctx)
			if err != nil {
				return err
			}
			return conn.Close(ctx)
		},
		Wipe: c.wipe,
	}
	t.Cleanup(func() { c.Stop(t) })
	c.Start(t, false)
	return c
}

// programs is where the server's programs are: Debian puts them into a directory
// for each version, which is on nobody's PATH.
func programs(t *testing.T) string {
	t.Helper()
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is valid
	if len(all) > 0 {
		return filepath.Dir(slices.MaxFunc(all, func(a, b string) int { return strings.Compare(a, b) }))
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path)
	}
	if require := strings.Split(os.Getenv("LOCKBENCH_REQUIRE"), ","); slices.Contains(require, "all") || slices.Contains(require, "postgres") {
		t.Fatal("LOCKBENCH_REQUIRE names postgres, and it is not installed")
	}
	t.Skip("postgres is not installed")
	return ""
}

func (c *cluster) data() string    { return filepath.Join(c.dir, "data") }
func (c *cluster) secret() string  { return filepath.Join(c.dir, "password") }
func (c *cluster) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// giveAway makes the directory that user's.
func (c *cluster) giveAway(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid) // both are numbers on every Unix
	gid, _ := strconv.Atoi(u.Gid)
	for _, path := range []string{c.dir, c.secret()} {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (c *cluster) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, program), args...)
	cmd.Dir, cmd.SysProcAttr = c.dir, &syscall.SysProcAttr{Credential: c.account}
	return cmd
}

// wipe leaves a server that has never been used.
func (c *cluster) wipe() error {
	if err := os.RemoveAll(c.data()); err != nil {
		return err
	}
	initdb := c.command("initdb", "-D", c.data(), "-U", role, "-A", "scram-sha-256", "--pwfile", c.secret(), "-E", "UTF8", "--locale", "C", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// copyData copies the data of a server that is stopped.
func (c *cluster) copyData(t *testing.T) (backup string) {
	t.Helper()
	backup = filepath.Join(c.dir, "backup")
	c.copy(t, c.data(), backup)
	return backup
}

// restore leaves a server that is stopped with the data of that copy.
func (c *cluster) restore(t *testing.T, backup string) {
	t.Helper()
	if err := os.RemoveAll(c.data()); err != nil {
		t.Fatal(err)
	}
	c.copy(t, backup, c.data())
}

// copy keeps modes and owners, which the server looks at.
func (c *cluster) copy(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy the server's data: %v\n%s", err, out)
	}
}

// connect connects the test itself.
func (c *cluster) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s dbname=postgres sslmode=disable", c.port, role, password))
}

func (c *cluster) config(prefix string) driver.Config {
	return driver.Config{"address": c.address(), "username": role, "password": password, "prefix": prefix}
}

// leftovers are what a case has left under its prefix. Tombstones and queue entries end by
// themselves.
func (c *cluster) leftovers(t drivertest.T, prefix string) (left []string) {
	t.Helper()
	conn, err := c.connect(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer conn.Close(t.Context())
	var none bool
	if err := conn.QueryRow(t.Context(), "SELECT to_regclass('lockbench.locks') IS NULL").Scan(&none); err != nil {
		t.Fatalf("%v", err)
	}
	if none {
		return nil
	}
	rows, err := conn.Query(t.Context(), "SELECT encode(name, 'escape') FROM lockbench.locks WHERE prefix = $1", prefix)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if left, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		t.Fatalf("%v", err)
	}
	return left
}
