package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// EnvError says that a server or a plugin cannot be used. Its message names the cause and the
// server's address, but never a secret.
type EnvError struct {
	Backend string // "" when the error concerns no particular backend
	Err     error
}

func (e *EnvError) Error() string {
	text := e.Err.Error()
	if e.Backend == "" || strings.HasPrefix(text, e.Backend+":") || strings.HasPrefix(text, "plugin ") || strings.Contains(text, " on "+e.Backend+": ") {
		return text // the text already names the backend
	}
	return e.Backend + ": " + text
}

func (e *EnvError) Unwrap() error { return e.Err }

// These are the environments in which throwaway servers run.
const (
	EnvLocal   = "local"   // child processes
	EnvCompose = "compose" // containers of the repository's compose.yaml
)

func Environments() []string { return []string{EnvLocal, EnvCompose} }

// environment starts throwaway servers. Only one goroutine at a time may use it. The zero value
// starts servers as processes on this machine.
type environment struct {
	name    string
	kept    map[string]driver.Config // servers of "lockbench env up", by backend
	compose *servers.Compose         // nil without containers
}

// openEnvironment chooses where servers run. Parameter up has the servers that "env up" keeps. They
// are used if name is "" or their environment. If up is nil, "" means EnvLocal.
func openEnvironment(ctx context.Context, name string, up *kept) (e *environment, err error) {
	e = &environment{name: cmp.Or(name, EnvLocal)}
	if up != nil && (name == "" || name == up.Env) {
		e = &environment{name: up.Env, kept: up.Servers}
	}
	if e.name == EnvCompose {
		if e.compose, err = servers.NewCompose(ctx); err != nil {
			return nil, composeError("", err)
		}
	}
	return e, nil
}

// start starts throwaway servers for a plugin, or returns servers that "lockbench env up" keeps.
// Servers that vote on grants usually wait after their start. These servers vote at once. Unless
// durable is set, the servers may lose data in a crash, which makes some stores faster.
func (e *environment) start(ctx context.Context, found plugin.Found, durable bool) (s *servers.Environment, err error) {
	kind := kinds.Of(found.Name)
	cfg, kept := e.kept[found.Name]
	switch {
	case kept:
		return &servers.Environment{Config: cfg}, nil
	case e.compose != nil && !kind.InHost():
		if s, err = kind.Up(ctx, e.compose, found.Path, durable); err != nil {
			return nil, composeError(found.Name, err)
		}
	case !kind.Known():
		return nil, Hinted(&EnvError{found.Name, errors.New("lockbench does not know how to start a server for it")},
			fmt.Sprintf("--server '%[1]s=COMMAND -p {port} -d {dir}' says so; or name one of yours: --target %[1]s=ADDRESS", found.Name))
	default:
		if s, err = kind.Start(ctx, found.Path, durable); err != nil {
			return nil, serverError(found.Name, err)
		}
	}
	if err := s.Admit(ctx); err != nil {
		return nil, errors.Join(&EnvError{Backend: found.Name, Err: err}, s.Close())
	}
	return s, nil
}

func serverError(backend string, err error) error {
	var missing *servers.NotInstalledError
	if errors.As(err, &missing) {
		return Hinted(&EnvError{backend, fmt.Errorf("%s is not installed", missing.Program)},
			fmt.Sprintf("%s; or name a server of yours: --target %s=ADDRESS", missing.How(), backend))
	}
	return &EnvError{backend, err}
}

func composeError(backend string, err error) error {
	return Hinted(&EnvError{backend, err},
		"docker's daemon must reach a registry, or have the images of scripts/images, and lockbench be in a checkout; or omit --env")
}

// close removes the started containers. Callers of the start method close local servers.
func (e *environment) close() error {
	if e.compose == nil {
		return nil
	}
	return e.compose.Close()
}

// kept describes throwaway servers that stay up between runs. The process of "env up" owns these
// servers. It writes this description to a file, and holds a lock on the file while it runs.
type kept struct {
	Pid     int                      `json:"pid"` // of the process that owns the servers
	Env     string                   `json:"env"`
	Started time.Time                `json:"started"`
	Servers map[string]driver.Config `json:"servers"` // by backend
	Skipped []string                 `json:"skipped,omitempty"`
}

// openState opens the file that describes the servers that "env up" keeps. The environment variable
// LOCKBENCH_STATE has the path of the file. By default, the file is in the user's cache directory.
func openState(flag int) (*os.File, error) {
	state := os.Getenv("LOCKBENCH_STATE")
	if state == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		state = filepath.Join(dir, "lockbench", "env.json")
	}
	if flag&os.O_CREATE != 0 {
		if err := os.MkdirAll(filepath.Dir(state), 0o700); err != nil {
			return nil, err
		}
	}
	return os.OpenFile(state, flag, 0o600)
}

// readKept returns the description of the servers that "env up" keeps, or nil if it keeps none.
func readKept() (*kept, error) {
	f, err := openState(os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return nil, nil // the process that kept the servers has died
	}
	k := &kept{}
	err = json.NewDecoder(f).Decode(k)
	if errors.Is(err, io.EOF) {
		return nil, nil // the servers are just being started
	}
	if err != nil {
		return nil, fmt.Errorf("%s does not describe servers: %w", f.Name(), err)
	}
	return k, nil
}

// Keep starts throwaway servers for the backends of the plan, and describes them in a file that
// later runs read. Then it passes a text about the servers to the function up, and keeps the
// servers until ctx ends. Keep returns an error if another process already keeps servers.
func Keep(ctx context.Context, p Plan, up func(shown string)) (err error) {
	f, err := claimState()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name()), f.Close()) }()
	found, err := p.find(p.Backends)
	if err != nil {
		return err
	}
	e, err := openEnvironment(ctx, p.Env, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	k := kept{Pid: os.Getpid(), Env: e.name, Started: time.Now().UTC(), Servers: map[string]driver.Config{}}
	started, err := k.start(ctx, e, found, len(p.Backends) > 0)
	defer func() { err = errors.Join(err, inject.Each(started, (*servers.Environment).Close)) }()
	if err != nil {
		return err
	}
	if err := json.NewEncoder(f).Encode(k); err != nil {
		return err
	}
	up(k.text())
	<-ctx.Done()
	return nil
}

// start starts the servers of the backends in found. If a server cannot be started, start returns
// the error if the user named the backends. Otherwise it skips that server.
func (k *kept) start(ctx context.Context, e *environment, found []plugin.Found, named bool) (all []*servers.Environment, err error) {
	for _, one := range found {
		s, err := e.start(ctx, one, false)
		var missing *EnvError
		if errors.As(err, &missing) && !named {
			k.Skipped = append(k.Skipped, fmt.Sprintf("%s: %v; %s", one.Name, missing.Err, Hint(err)))
			continue
		}
		if err != nil {
			return all, err
		}
		all = append(all, s)
		if s.Config["address"] != "" {
			k.Servers[one.Name] = s.Config
		}
	}
	if len(k.Servers) == 0 {
		return all, &EnvError{Err: fmt.Errorf("no server could be started: %s", strings.Join(k.Skipped, "; "))}
	}
	return all, nil
}

// claimState creates and locks the file that describes the servers that "env up" keeps. Only the
// user of this process may read the file, because it contains addresses with passwords.
func claimState() (*os.File, error) {
	f, err := openState(os.O_CREATE | os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(usagef("servers are up already, by %s", f.Name()), f.Close())
	}
	return f, f.Truncate(0)
}

// KeptServers returns an Outcome that describes the servers that "lockbench env up" keeps.
func KeptServers() (*Outcome, error) {
	k, err := readKept()
	if err != nil {
		return nil, &EnvError{Err: err}
	}
	if k == nil {
		return &Outcome{text: "no servers are kept; lockbench env up starts some\n"}, nil
	}
	return &Outcome{text: k.text()}, nil
}

func (k kept) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s servers, up since %s, kept by process %d\n", k.Env, k.Started.Format("2006-01-02 15:04:05 UTC"), k.Pid)
	for _, name := range slices.Sorted(maps.Keys(k.Servers)) {
		fmt.Fprintf(&b, "  %-10s%s\n", name, shownAddress(k.Servers[name]["address"]))
	}
	for _, s := range k.Skipped {
		fmt.Fprintf(&b, "left out: %s\n", s)
	}
	return b.String()
}

const dropTimeout = time.Minute

// Drop ends the process that keeps servers, and waits until the servers have ended.
func Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dropTimeout)
	defer cancel()
	k, err := readKept()
	if err != nil || k == nil {
		return err
	}
	if err := syscall.Kill(k.Pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("end process %d, which keeps the servers: %w", k.Pid, err)
	}
	for {
		if k, err := readKept(); err != nil || k == nil {
			return err
		}
		if !proc.Sleep(ctx, 20*time.Millisecond) {
			return fmt.Errorf("process %d, which keeps the servers, does not end: %w", k.Pid, ctx.Err())
		}
	}
}
