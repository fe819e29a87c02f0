package servers

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// The places that a command and a configuration leave open.
const (
	PortPlace = "{port}" // on 127.0.0.1
	DirPlace  = "{dir}"  // a directory that is empty at first
)

// Stranger is how a command starts the servers of a store of which nothing else is known.
type Stranger struct {
	// Line is for /bin/sh, and ends up as the server, which listens on [PortPlace] and
	// keeps its data in [DirPlace], its working directory. "" for a store that is files
	// in [DirPlace], with no server.
	Line string
	// Keys are those of the plugin's configuration that have a place in their values.
	Keys driver.Config
	// Forgets reports whether the server keeps no data over a crash.
	Forgets bool
	// Open starts a plugin that has this configuration of Keys. What check returns
	// decides whether the store serves.
	Open func(ctx context.Context, cfg driver.Config) (check func(context.Context) error, end func() error, err error)
}

// Kind is that of the store. An operator does nothing to it, as no text says how.
func (c Stranger) Kind(backend string) *Kind {
	k := &Kind{
		Name: backend, stranger: &c, Settings: []Setting{{Name: Plain, Servers: 1}},
		Lacks: Lacking(nil, "one command starts one server", CapMinority, CapLeader, CapVotes, CapReplica, CapSentinel, CapSlots),
	}
	k.Lacks = Lacking(k.Lacks, "lockbench does not know how, of a server that a command starts", CapExhaust, CapEvict)
	// A library that is preloaded moves the clock of some programs and not of others.
	k.Lacks[CapClock] = "lockbench cannot see whether the clock of a server moves that a command starts"
	if c.Forgets {
		k.Lacks[CapKeeps] = "its claims say that it keeps no data over a crash"
	}
	if c.Line == "" {
		k.Lacks = Lacking(nil, "its store is files, without a server",
			CapServers, CapMinority, CapLeader, CapVotes, CapKeeps, CapClock, CapReplica, CapExhaust, CapSentinel, CapSlots, CapEvict)
	}
	k.Prepare = func(ctx context.Context, e *Environment, _ Requirements) error { return c.prepare(ctx, e) }
	return k
}

func (c Stranger) prepare(ctx context.Context, e *Environment) error {
	a := &asked{open: c.Open}
	e.Product = a
	e.AtEnd(a.close)
	if c.Line != "" {
		s, err := Launch(ctx, c.recipe(ctx, e, a))
		if err == nil {
			e.Servers = Nodes{s}
		}
		return err
	}
	scratch, err := NewScratch()
	if err != nil {
		return err
	}
	e.AtEnd(scratch.Close)
	e.Config = c.config(DirPlace, scratch.Dir())
	if err := a.begin(ctx, e.Config); err != nil {
		return err
	}
	return a.Check(ctx)
}

// strangersData is the directory with the data of a server, below its own.
const strangersData = "data"

func (c Stranger) recipe(ctx context.Context, e *Environment, a *asked) Recipe {
	return Recipe{
		Product: e.kind.Name, Keeps: !c.Forgets, Data: []string{strangersData},
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			data := filepath.Join(dir, strangersData)
			line := strings.NewReplacer(PortPlace, strconv.Itoa(port), DirPlace, data).Replace(c.Line)
			argv := []string{"/bin/sh", "-c", `cd "$0" && ` + line, data}
			if err := os.MkdirAll(data, 0o700); err != nil || a.check != nil {
				return argv, err
			}
			e.Config = c.config(DirPlace, data)
			cfg := c.config(PortPlace, strconv.Itoa(port))
			maps.Copy(cfg, e.Config)
			return argv, a.begin(ctx, cfg)
		},
		Ready: func(ctx context.Context, _ string) error { return a.Check(ctx) },
	}
}

// asked is a store that a plugin asks.
type asked struct {
	open  func(context.Context, driver.Config) (func(context.Context) error, func() error, error)
	check func(context.Context) error // nil until it has begun
	end   func() error
}

// begin opens the plugin, before the server is there, which it need not find, and for
// good: it has no start to wait for when a server was started again.
func (a *asked) begin(ctx context.Context, cfg driver.Config) (err error) {
	a.check, a.end, err = a.open(ctx, cfg)
	return err
}

func (a *asked) close() error {
	if a.end == nil {
		return nil
	}
	return a.end()
}

// Check implements [Product].
func (a *asked) Check(ctx context.Context) error { return a.check(ctx) }

// Left implements [Product]. Only the plugin could read it.
func (a *asked) Left(context.Context, string) ([]string, error) { return nil, nil }

// config are the keys with a place in their values, and what is there.
func (c Stranger) config(place, what string) driver.Config {
	cfg := driver.Config{}
	for key, value := range c.Keys {
		if strings.Contains(value, place) {
			cfg[key] = strings.ReplaceAll(value, place, what)
		}
	}
	return cfg
}

// at is the configuration that leads to a server at host:port, on this machine.
func (c Stranger) at(addr string) driver.Config {
	return c.config(PortPlace, addr[strings.LastIndexByte(addr, ':')+1:])
}

// Route leads a configuration of the store to where via says for the address of
// the server that it leads to. ok is false if no command starts such servers.
func (k *Kind) Route(cfg driver.Config, via func(address string) (string, error)) (ok bool, err error) {
	if k.stranger == nil {
		return false, nil
	}
	for key, value := range k.stranger.config(PortPlace, portMark) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(value), portMark, `(\d+)`)
		port := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(cfg[key])
		if port == nil {
			continue // it leads to a server of the caller's
		}
		to, err := via("127.0.0.1:" + port[1])
		maps.Copy(cfg, k.stranger.at(to))
		return true, err
	}
	return false, nil
}

// portMark stands for a port in a pattern, and means nothing there.
const portMark = "PORT"
