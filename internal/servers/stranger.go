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

// These placeholders may stand in [Stranger].Line and in the values of [Stranger].Keys.
const (
	PortPlace = "{port}" // a port on 127.0.0.1
	DirPlace  = "{dir}"  // a directory that is empty at first
)

// Stranger describes a store that lockbench does not know. A command starts its server.
type Stranger struct {
	// Line is a command for /bin/sh. Its process must become the server, which listens on
	// [PortPlace] and keeps its data in its working directory, [DirPlace]. Line is "" if the store
	// has no server and consists of files in [DirPlace].
	Line string
	// Keys has the keys of the plugin's configuration whose values contain a placeholder.
	Keys driver.Config
	// Forgets reports whether the server loses its data in a crash.
	Forgets bool
	// Open opens a plugin with the configuration cfg, in which no placeholder is left. The function
	// check returns nil if the store serves. The function end ends the plugin.
	Open func(ctx context.Context, cfg driver.Config) (check func(context.Context) error, end func() error, err error)
}

// Kind returns a kind for this store. The kind has no operations, because lockbench knows none.
func (c Stranger) Kind(backend string) *Kind {
	k := &Kind{
		Name: backend, stranger: &c, Settings: []Setting{{Name: Plain, Servers: 1}},
		Lacks: Lacking(nil, "one command starts one server", CapMinority, CapLeader, CapVotes, CapReplica, CapSentinel, CapSlots),
	}
	k.Lacks = Lacking(k.Lacks, "lockbench does not know how, of a server that a command starts", CapExhaust, CapEvict)
	// The library that moves clocks works for some programs only; see [inject.ClockLibrary].
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
	if c.Line != "" {
		s, err := Launch(ctx, c.recipe(ctx, e))
		if err == nil {
			e.Servers = Nodes{s}
		}
		return err
	}
	scratch, err := NewScratch()
	if err != nil {
		return err
	}
	e.Config = c.config(DirPlace, scratch.Dir())
	err = c.open(ctx, e, e.Config)
	e.AtEnd(scratch.Close) // after the plugin's end
	if err != nil {
		return err
	}
	return e.Product.Check(ctx)
}

// strangersData is the name of the directory [DirPlace] in the server's directory.
const strangersData = "data"

func (c Stranger) recipe(ctx context.Context, e *Environment) Recipe {
	return Recipe{
		Product: e.kind.Name, Keeps: !c.Forgets, Data: []string{strangersData},
		Prepare: func(dir string, port int, _ bool) ([]string, error) {
			data := filepath.Join(dir, strangersData)
			line := strings.NewReplacer(PortPlace, strconv.Itoa(port), DirPlace, data).Replace(c.Line)
			argv := []string{"/bin/sh", "-c", `cd "$0" && ` + line, data}
			if err := os.MkdirAll(data, 0o700); err != nil || e.Product != nil {
				return argv, err
			}
			e.Config = c.config(DirPlace, data)
			cfg := c.config(PortPlace, strconv.Itoa(port))
			maps.Copy(cfg, e.Config)
			return argv, c.open(ctx, e, cfg)
		},
		Ready: func(ctx context.Context, _ string) error { return e.Product.Check(ctx) },
	}
}

// open opens the plugin. A plugin opens without a server, so open is called before the server
// starts. The plugin stays open, so a later start of the server need not wait for the plugin.
func (c Stranger) open(ctx context.Context, e *Environment, cfg driver.Config) error {
	check, end, err := c.Open(ctx, cfg)
	if err == nil {
		e.Product = asked(check)
		e.AtEnd(end)
	}
	return err
}

// asked is the [Product] of a store that lockbench can ask only through its plugin.
type asked func(context.Context) error

func (check asked) Check(ctx context.Context) error { return check(ctx) }

// Left lists nothing, because only the plugin can read the store.
func (asked) Left(context.Context, string) ([]string, error) { return nil, nil }

// config returns the keys whose values contain the placeholder place, with the text what instead.
func (c Stranger) config(place, what string) driver.Config {
	cfg := driver.Config{}
	for key, value := range c.Keys {
		if strings.Contains(value, place) {
			cfg[key] = strings.ReplaceAll(value, place, what)
		}
	}
	return cfg
}

func (c Stranger) at(addr string) driver.Config {
	return c.config(PortPlace, addr[strings.LastIndexByte(addr, ':')+1:])
}

// Route replaces the server's address in cfg by the address that the function via returns for the
// server. The result ok is false if cfg leads to a server that no command has started.
func (k *Kind) Route(cfg driver.Config, via func(address string) (string, error)) (ok bool, err error) {
	if k.stranger == nil {
		return false, nil
	}
	for key, value := range k.stranger.config(PortPlace, portMark) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(value), portMark, `(\d+)`)
		port := regexp.MustCompile("^" + pattern + "$").FindStringSubmatch(cfg[key])
		if port == nil {
			continue // the key leads to the user's own server
		}
		to, err := via("127.0.0.1:" + port[1])
		maps.Copy(cfg, k.stranger.at(to))
		return true, err
	}
	return false, nil
}

// portMark stands for the port in a value from which Route makes a pattern.
const portMark = "PORT"
