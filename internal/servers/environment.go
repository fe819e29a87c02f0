package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
)

// Timeout is how long a server may take to carry out an order. A replica that has
// lost its master looks for it once a second, and copies everything.
const Timeout = 15 * time.Second

// healthTimeout bounds the question whether servers are healthy.
const healthTimeout = 2 * time.Second

// Environment is the servers of one backend, the paths to them, and the ways to harm
// them. Missing parts are nil. One goroutine uses it at a time.
type Environment struct {
	// Servers are those that hosts use, in the order of their addresses; none for a
	// backend that has no server, or has it in containers.
	Servers Nodes
	// Replica follows the first server, over Link, which does not wait for it.
	Replica *Server
	Link    *inject.Proxy
	Clocks  []*inject.Clock // of Servers, and of the replica
	// Config is the backend's configuration; see [Environment.ConfigOf].
	Config driver.Config
	// Product answers questions that depend on the kind of server. It is nil for a
	// store that lives in the hosts, and for servers that are measured.
	Product Product
	// Paths are all paths that were added, for each host.
	Paths [][]*inject.Proxy
	// Shifted reports whether a clock was moved since [Environment.Again].
	Shifted bool
	User    string // account with which hosts log in
	Login   string // login in the address, instead of the servers' first one
	// PasswordFile is where hosts read their password; "" where they do not.
	PasswordFile string
	// Ready, unless it is nil, gives the servers their first roles back, and returns
	// when another round can begin.
	Ready func(ctx context.Context) error
	// Balanced reports whether hosts have one path, which leads to all servers in turn.
	Balanced bool

	inject.Background
	kind   *Kind
	plugin string         // path of the binary
	end    []func() error // further things to close
}

// Product has the questions to servers of one kind; see [Environment.Healthy] and
// [Environment.Leftovers].
type Product interface {
	Check(ctx context.Context) error
	Left(ctx context.Context, prefix string) ([]string, error)
}

// Requirements says what an environment must have.
type Requirements struct {
	// Setting is the name of one of [Kind.Settings]; "" for the first.
	Setting string
	Needs   []Capability
	TTL     time.Duration // the longest of the leases
	Plugin  string        // path of the binary
	Dir     string        // for temporary files
}

// Wants reports whether p is among Needs.
func (w Requirements) Wants(p Capability) bool { return slices.Contains(w.Needs, p) }

// Has reports whether its servers have a capability.
func (e *Environment) Has(c Capability) bool { return e.kind.Has(c) }

// Open starts the servers of a known store. Errors of servers that are not installed
// wrap [ErrNotInstalled].
func (k *Kind) Open(ctx context.Context, w Requirements) (*Environment, error) {
	e := &Environment{kind: k, plugin: w.Plugin, Config: driver.Config{}}
	err := k.Prepare(ctx, e, w)
	if err == nil {
		err = e.Admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Start starts servers of a known store for a measurement. They serve once they are
// admitted. Products that can run without durability are faster so. The path of the
// backend's plugin is plugin.
func (k *Kind) Start(ctx context.Context, plugin string, durable bool) (*Environment, error) {
	e := &Environment{kind: k, plugin: plugin, Config: driver.Config{}}
	var err error
	if k.Launch == nil {
		err = k.Prepare(ctx, e, Requirements{Plugin: plugin})
	} else {
		e.Servers, err = k.Launch(ctx, durable)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.Config = e.ConfigOf(nil)
	if durable {
		maps.Copy(e.Config, k.Durable)
	}
	return e, nil
}

// Up is [Kind.Start] in containers.
func (k *Kind) Up(ctx context.Context, c *Compose, plugin string, durable bool) (*Environment, error) {
	at, err := c.Up(ctx, k.Name, k.Services, durable)
	if err != nil {
		return nil, err
	}
	return &Environment{kind: k, plugin: plugin, Config: k.config(at)}, nil
}

// Admit lets servers that were started, or started again, vote at once, where
// they would not by themselves. It may be called for all backends.
func (e *Environment) Admit(ctx context.Context) error {
	if !e.Has(CapVotes) {
		return nil
	}
	var config []string
	for key, value := range e.ConfigOf(nil) {
		config = append(config, key+"="+value)
	}
	return Init(ctx, e.plugin, config...)
}

// Init runs the init command of the plugin at the path binary, so that servers, which
// are fresh, vote at once. config must have the lines of the configuration that hosts
// will use, as "key=value", including the address.
func Init(ctx context.Context, binary string, config ...string) error {
	cmd := exec.CommandContext(ctx, binary, "init")
	cmd.Stdin = strings.NewReader(strings.Join(config, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		name := strings.TrimPrefix(filepath.Base(binary), "lockplugin-")
		return fmt.Errorf("servers: init of %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// AddPaths puts one proxy in front of each server, or of all, for one host. They are closed
// with the environment.
func (e *Environment) AddPaths() ([]*inject.Proxy, error) {
	to := make([][]string, len(e.Servers))
	for i, at := range e.Servers.Addrs() {
		to[i] = []string{at}
	}
	if e.Balanced {
		to = [][]string{e.Servers.Addrs()}
	}
	var paths []*inject.Proxy
	for _, at := range to {
		p, err := inject.NewProxy(at[0])
		if err != nil {
			return nil, err
		}
		p.Push = e.kind.Push
		paths = append(paths, p)
		e.AtEnd(p.Close)
		if err := p.Lead(at...); err != nil {
			return nil, err
		}
	}
	e.Paths = append(e.Paths, paths)
	return paths, nil
}

// Lead lets the paths of all hosts that lead to server n lead to others.
func (e *Environment) Lead(n int, by inject.Leading, to ...string) error {
	return inject.Each(e.Paths, func(paths []*inject.Proxy) error { return by(paths[n], to...) })
}

// ConfigOf is the configuration of a host that uses the given paths, or none.
func (e *Environment) ConfigOf(paths []*inject.Proxy) driver.Config {
	cfg := maps.Clone(e.Config)
	at := e.Servers.Addrs()
	if len(paths) > 0 {
		at = nil
	}
	for _, p := range paths {
		at = append(at, p.Addr())
	}
	maps.Copy(cfg, e.kind.config(at))
	if e.Login != "" {
		cfg["address"] = LoginTo(cfg["address"], e.Login)
	}
	return cfg
}

// LoginTo returns an address with another login.
func LoginTo(address, login string) string { return login + address[strings.IndexByte(address, '@'):] }

// Again brings the servers back to their first state, between rounds.
func (e *Environment) Again(ctx context.Context) error {
	var err error
	for n := range e.Clocks {
		err = errors.Join(err, e.ShiftClock(n, 0))
	}
	if e.Ready != nil {
		err = errors.Join(err, e.Ready(ctx))
	}
	e.Shifted = false
	return err
}

// Healthy returns nil when the servers serve hosts, and are as they began: in
// their roles, with their settings and the right time. It asks each of them.
func (e *Environment) Healthy(ctx context.Context) error {
	if e.Product == nil {
		return nil
	}
	if e.Shifted {
		return errors.New("servers: a clock was moved")
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := e.Product.Check(ctx); err != nil {
		return fmt.Errorf("servers: %w", err)
	}
	return nil
}

// Leftovers lists the remains in the store of locks whose names begin with prefix:
// keys, or rows that a client holds or waits for. It leaves out remains that stay on
// purpose, such as a counter of tokens and withdrawn owners.
func (e *Environment) Leftovers(ctx context.Context, prefix string) ([]string, error) {
	if e.Product == nil {
		return nil, nil
	}
	return e.Product.Left(ctx, prefix)
}

// AtEnd lets something be done when the environment is closed.
func (e *Environment) AtEnd(do func() error) { e.end = append(e.end, do) }

// Close ends the background work of faults, closes the paths, and ends the servers.
func (e *Environment) Close() error {
	return errors.Join(e.EndBackground(), inject.Each(e.end, func(end func() error) error { return end() }), e.Servers.Close())
}

// StartClock makes the clock of one server and its wrapping command, for a
// fault that moves it.
func (e *Environment) StartClock(ctx context.Context, w Requirements) ([]string, error) {
	if !w.Wants(CapClock) {
		return nil, nil
	}
	library, err := inject.ClockLibrary(ctx, w.Dir)
	if errors.Is(err, exec.ErrNotFound) {
		err = &NotInstalledError{Program: "cc", Debian: "gcc", Homebrew: "gcc"}
	}
	if err != nil {
		return nil, err
	}
	c, err := inject.NewClock(library, w.Dir, fmt.Sprintf("clock-%d", len(e.Clocks)))
	if err != nil {
		return nil, err
	}
	e.Clocks = append(e.Clocks, c)
	return c.Wrap(), nil
}

// This is the account of the hosts, which has fewer rights than the servers' first account.
const (
	HostUser      = "recorder"
	HostPassword  = "recorder-password"
	OtherPassword = "another-password"
)

// Account sets how hosts log in, by the keys that their plugin takes: with a file for
// the password, which is removed with the environment, or with the password itself. A
// plugin without users uses the default user.
func (e *Environment) Account(ctx context.Context, w Requirements) error {
	said, _ := exec.CommandContext(ctx, w.Plugin, "describe").Output() // a program that cannot be run fails later, when it is opened
	takes := func(key string) bool { return bytes.Contains(said, []byte("\n"+key+" ")) }
	e.User = "default" // needs no password, on servers that have users
	if takes("username") {
		e.User, e.Config["username"], e.Config["password"] = HostUser, HostUser, HostPassword
	}
	if !takes("password_file") {
		return nil
	}
	delete(e.Config, "password")
	e.PasswordFile = filepath.Join(w.Dir, "password")
	e.Config["password_file"] = e.PasswordFile
	e.AtEnd(func() error { return os.Remove(e.PasswordFile) })
	return e.WritePassword(HostPassword)
}

// errNoPasswordFile is the error for a plugin that is older than the password file.
var errNoPasswordFile = errors.New("servers: the plugin reads no file with a password")

// WritePassword replaces the file at once, so that no host reads half of it.
func (e *Environment) WritePassword(password string) error {
	if e.PasswordFile == "" {
		return errNoPasswordFile
	}
	fresh := e.PasswordFile + ".new"
	if err := os.WriteFile(fresh, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, e.PasswordFile)
}
