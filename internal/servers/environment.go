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

// Timeout is the longest time that a server may take to obey a command. A replica without its
// master takes longest, because it looks for the master once a second, and then copies all data.
const Timeout = 15 * time.Second

const healthTimeout = 2 * time.Second

// Environment is the servers of one backend, the paths (proxies) to them, and the ways to harm
// both. Fields that do not apply are nil. Only one goroutine at a time may use an Environment.
type Environment struct {
	// Servers are the servers that hosts use, in the order of their addresses. Servers is empty if the
	// backend has no server, or if its servers are in containers.
	Servers Nodes
	// Replica replicates the first server asynchronously. Link, if not nil, is the proxy between them.
	Replica *Server
	Link    *inject.Proxy
	Clocks  []*inject.Clock // the clocks of Servers and of the replica
	// Config is the backend's configuration; see [Environment.ConfigOf].
	Config driver.Config
	// Product answers questions that depend on the kind of server. It is nil if the
	// store lives in the hosts, or if the servers were started only for a measurement.
	Product Product
	// Paths has, for each host, the proxies to the servers. AddPaths makes them.
	Paths [][]*inject.Proxy
	// Shifted reports whether a clock was set wrong since the last call of [Environment.Again].
	Shifted bool
	User    string // account with which hosts log in
	Login   string // replaces the login in the address; "" replaces nothing
	// PasswordFile is the file with the hosts' password. It is "" if hosts use no such file.
	PasswordFile string
	// Ready, if not nil, gives each server back the role that it had at first. It returns when the
	// next run can begin.
	Ready func(ctx context.Context) error

	inject.Background
	kind    *Kind
	setting Setting
	plugin  string         // path of the plugin binary
	end     []func() error // functions that Close calls
}

// Product answers the questions of [Environment.Healthy] and
// [Environment.Leftovers] for one kind of server.
type Product interface {
	Check(ctx context.Context) error
	Left(ctx context.Context, prefix string) ([]string, error)
}

// Requirements says what an environment must have.
type Requirements struct {
	// Setting is the name of one of [Kind.Settings]. "" means the first setting.
	Setting string
	Needs   []Capability
	TTL     time.Duration // the longest TTL of the leases
	Plugin  string        // path of the plugin binary
	Dir     string        // for temporary files
}

func (w Requirements) Wants(p Capability) bool { return slices.Contains(w.Needs, p) }

func (e *Environment) Has(c Capability) bool { return e.kind.Has(c) }

// Open starts the servers of store k for fault tests. The
// error wraps [ErrNotInstalled] if a server is not installed.
func (k *Kind) Open(ctx context.Context, w Requirements) (*Environment, error) {
	e := &Environment{kind: k, setting: k.Setting(w.Setting), plugin: w.Plugin, Config: driver.Config{}}
	err := k.Prepare(ctx, e, w)
	if err == nil {
		err = e.Admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// Start starts the servers of store k for a measurement. Call [Environment.Admit] before hosts use
// the servers. If durable is false, each server that can run without durability does so, to be
// faster. Parameter plugin is the path of the backend's plugin.
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

// Up starts the same servers as [Kind.Start], but in containers.
func (k *Kind) Up(ctx context.Context, c *Compose, plugin string, durable bool) (*Environment, error) {
	at, err := c.Up(ctx, k.Name, k.Services, durable)
	if err != nil {
		return nil, err
	}
	return &Environment{kind: k, plugin: plugin, Config: k.config(at)}, nil
}

// Admit lets servers vote at once. Without Admit, servers do not vote for a while after their
// start. Admit does nothing for backends whose servers do not vote.
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

// Init runs the init command of the plugin at the path binary, so that fresh servers vote at once.
// Parameter config has the hosts' configuration, including the address, in lines "key=value".
func Init(ctx context.Context, binary string, config ...string) error {
	cmd := exec.CommandContext(ctx, binary, "init")
	cmd.Stdin = strings.NewReader(strings.Join(config, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		name := strings.TrimPrefix(filepath.Base(binary), "lockplugin-")
		return fmt.Errorf("servers: init of %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// AddPaths makes the paths (proxies) of one host. If the setting is Balanced, one proxy stands in
// front of all servers. Otherwise each server has a proxy. Close closes the proxies.
func (e *Environment) AddPaths() ([]*inject.Proxy, error) {
	to := make([][]string, len(e.Servers))
	for i, at := range e.Servers.Addrs() {
		to[i] = []string{at}
	}
	if e.setting.Balanced {
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

// Lead makes proxy n of each host lead to the servers at the given addresses. It calls the function
// by (a method such as Retarget) for each of these proxies.
func (e *Environment) Lead(n int, by inject.Leading, to ...string) error {
	return inject.Each(e.Paths, func(paths []*inject.Proxy) error { return by(paths[n], to...) })
}

// ConfigOf returns the configuration of a host. If paths is
// not empty, the host connects through these proxies.
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

// LoginTo returns the address with login in place of the part before its "@".
func LoginTo(address, login string) string { return login + address[strings.IndexByte(address, '@'):] }

// Again brings the servers back to the state that they had at first, so that a new run can begin.
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

// Healthy asks each server. It returns nil if all servers serve hosts, have their first roles and
// settings, and show the right time.
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

// Leftovers lists the keys or rows in the store that are left of
// locks whose names begin with prefix. It omits data that backends
// leave on purpose, such as a counter of tokens and withdrawn owners.
func (e *Environment) Leftovers(ctx context.Context, prefix string) ([]string, error) {
	if e.Product == nil {
		return nil, nil
	}
	return e.Product.Left(ctx, prefix)
}

func (e *Environment) AtEnd(do func() error) { e.end = append(e.end, do) }

// Close ends the background work of faults, closes the proxies, and ends the servers.
func (e *Environment) Close() error {
	return errors.Join(e.EndBackground(), inject.Each(e.end, func(end func() error) error { return end() }), e.Servers.Close())
}

// StartClock makes a clock, which faults can set wrong, for one server if w needs [CapClock]. It
// returns the words to put in front of the server's command, or no words if it makes no clock.
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

// Hosts log in with an account that has fewer rights than a server's first account.
const (
	HostUser      = "recorder"
	HostPassword  = "recorder-password"
	OtherPassword = "another-password"
)

// Account sets how hosts log in, depending on the plugin's configuration keys. If the plugin has
// the key "password_file", the password is in a file, which Close removes. Without this key, the
// password is in the configuration. Without a key "username", hosts log in as the default user.
func (e *Environment) Account(ctx context.Context, w Requirements) error {
	said, _ := exec.CommandContext(ctx, w.Plugin, "describe").Output() // if the program cannot be run, opening it fails later
	takes := func(key string) bool { return bytes.Contains(said, []byte("\n"+key+" ")) }
	e.User = "default" // on servers with users, this user needs no password
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

var errNoPasswordFile = errors.New("servers: the plugin reads no file with a password")

// WritePassword replaces the password file atomically, so that no host reads half of it.
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
