package servers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/inject"
)

// Timeout is how long a server may take to do what it is told: a replica that
// has lost its master looks for it once a second, and copies everything.
const Timeout = 15 * time.Second

// healthTimeout bounds the question whether servers are healthy.
const healthTimeout = 2 * time.Second

// Environment is the servers of one backend, the paths to them, and what may be
// done to them. One goroutine uses it at a time.
type Environment struct {
	Setup  Setup
	kind   *Kind
	All    Nodes         // those that have to be closed
	Config driver.Config // of the backend, without the address of Setup.Servers
	// Product is what only this kind of server knows; nil for one that lives in
	// the hosts.
	Product Product
	// Paths are all that were added, of each host.
	Paths [][]*inject.Proxy
	// Shifted reports whether a clock was moved since [Environment.Again].
	Shifted bool
	User    string // as which hosts log in
	Login   string // in the address, instead of the one that servers begin with
	// PasswordFile is where hosts read their password; "" where they do not.
	PasswordFile string
	// Admit lets servers that were started vote at once, where they would not.
	Admit func(ctx context.Context) error
	// Ready, unless it is nil, gives the servers the roles back in which they began,
	// and returns when another round can begin.
	Ready func(ctx context.Context) error
	// Balanced reports whether hosts have one path, which leads to all servers in turn.
	Balanced bool
	end      []func() error // further things to close
}

// Product is what is asked of the servers of one kind; see [Environment.Healthy],
// [Environment.Leftovers] and [Environment.Connections].
type Product interface {
	Check(ctx context.Context) error
	Left(ctx context.Context, prefix string) ([]string, error)
	Connected(ctx context.Context) (int, error)
}

// Requirements is what an environment is to have.
type Requirements struct {
	// Setting is the name of one of [Kind.Settings]; "" for the first.
	Setting string
	Needs   []Capability
	// Many asks for several servers, where the backend can have several or one.
	Many   bool
	TTL    time.Duration // the longest of the leases
	Plugin string        // path of the binary
	Dir    string        // for temporary files
}

// Wants reports whether p is among Needs.
func (w Requirements) Wants(p Capability) bool { return slices.Contains(w.Needs, p) }

// Open starts the servers of a store that is known. Errors of servers that are
// not installed wrap [ErrNotInstalled].
func (k *Kind) Open(ctx context.Context, w Requirements) (*Environment, error) {
	e := &Environment{kind: k, Config: driver.Config{}}
	e.Setup.Votes = k.Has(CapVotes)
	err := k.Prepare(ctx, e, w)
	if err == nil && w.Wants(CapPaths) {
		if e.Setup.HolderPaths, err = e.AddPaths(); err == nil {
			e.Setup.RivalPaths, err = e.AddPaths()
		}
	}
	if err == nil && e.Admit != nil {
		err = e.Admit(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// AddPaths puts one proxy in front of each server, or of all, for one host. They are closed
// with the environment.
func (e *Environment) AddPaths() ([]*inject.Proxy, error) {
	var paths []*inject.Proxy
	var at []string
	for _, server := range e.Setup.Servers {
		if at = append(at, server.Addr()); e.Balanced && len(paths) > 0 {
			continue
		}
		p, err := inject.NewProxy(server.Addr())
		if err != nil {
			return nil, err
		}
		paths = append(paths, p)
		e.AtEnd(p.Close)
	}
	if e.Balanced {
		if err := paths[0].Lead(at...); err != nil {
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
	var at []string
	for _, p := range paths {
		at = append(at, p.Addr())
	}
	if len(paths) == 0 {
		for _, server := range e.Setup.Servers {
			at = append(at, server.Addr())
		}
	}
	maps.Copy(cfg, e.kind.config(at))
	if e.Login != "" {
		cfg["address"] = LoginTo(cfg["address"], e.Login)
	}
	return cfg
}

// LoginTo is an address with another login.
func LoginTo(address, login string) string { return login + address[strings.IndexByte(address, '@'):] }

// Add takes over servers that a fault may harm.
func (e *Environment) Add(servers ...*Server) {
	e.All = append(e.All, servers...)
	for _, server := range servers {
		e.Setup.Servers = append(e.Setup.Servers, server)
	}
}

// Again brings the servers back to where they began, between rounds.
func (e *Environment) Again(ctx context.Context) error {
	var err error
	for n := range e.Setup.Clocks {
		err = errors.Join(err, e.ShiftClock(n, 0))
	}
	if e.Ready != nil {
		err = errors.Join(err, e.Ready(ctx))
	}
	e.Shifted = false
	return err
}

// ShiftClock makes the clock of server n differ from the true time by d.
func (e *Environment) ShiftClock(n int, d time.Duration) error {
	e.Shifted = e.Shifted || d != 0
	return e.Setup.Clocks[n].Shift(d)
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

// Leftovers lists what is in the store of locks whose names begin with prefix:
// keys, or rows that somebody holds or waits for. What stays on purpose, as a
// counter of tokens does and the owners that were withdrawn, is not listed.
func (e *Environment) Leftovers(ctx context.Context, prefix string) ([]string, error) {
	if e.Product == nil {
		return nil, nil
	}
	return e.Product.Left(ctx, prefix)
}

// Connections counts those that hosts have to the servers.
func (e *Environment) Connections(ctx context.Context) (int, error) {
	if e.Product == nil {
		return 0, nil
	}
	return e.Product.Connected(ctx)
}

// AtEnd lets something be done when the environment is closed.
func (e *Environment) AtEnd(do func() error) { e.end = append(e.end, do) }

// Close ends what a fault does in the background, closes the paths, and ends the
// servers.
func (e *Environment) Close() error {
	return errors.Join(e.Setup.EndBackground(), inject.Each(e.end, func(end func() error) error { return end() }), e.All.Close())
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
	c, err := inject.NewClock(library, w.Dir, fmt.Sprintf("clock-%d", len(e.Setup.Clocks)))
	if err != nil {
		return nil, err
	}
	e.Setup.Clocks = append(e.Setup.Clocks, c)
	return c.Wrap(), nil
}
