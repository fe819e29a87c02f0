package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
)

// The environments in which throwaway servers run.
const (
	EnvLocal   = "local"   // child processes
	EnvCompose = "compose" // containers of the repository's compose.yaml
)

// Environments lists them.
func Environments() []string { return []string{EnvLocal, EnvCompose} }

// environment starts throwaway servers. It is used by one goroutine.
type environment struct {
	name    string
	kept    *Kept        // servers of "lockbench env up"; nil for none
	compose *env.Compose // nil until a container is needed
}

// openEnvironment chooses where servers run. Without a name they are those that
// are kept, else local ones.
func openEnvironment(name string, kept *Kept) *environment {
	switch {
	case name == "" && kept != nil:
		name = kept.Env
	case name == "":
		name = EnvLocal
	}
	if kept != nil && kept.Env != name {
		kept = nil
	}
	return &environment{name: name, kept: kept}
}

// start is [StartServers] in this environment. It takes kept servers where
// there are some of the backend.
func (e *environment) start(ctx context.Context, found plugin.Found, durable bool) (*Servers, error) {
	if e.kept != nil {
		if cfg, ok := e.kept.Servers[found.Name]; ok {
			return &Servers{Config: cfg}, nil
		}
	}
	if e.name != EnvCompose || found.Name == "memory" {
		return StartServers(ctx, found, durable)
	}
	if e.compose == nil {
		var err error
		if e.compose, err = env.NewCompose(ctx); err != nil {
			return nil, composeError(found.Name, err)
		}
	}
	all, err := e.compose.Up(ctx, found.Name, durable)
	if err != nil {
		return nil, composeError(found.Name, err)
	}
	s := &Servers{Config: env.ComposeConfig(found.Name, all), Containers: all}
	if found.Name == "redlock" {
		if err := env.InitRedlock(ctx, found.Path, "address="+s.Config["address"]); err != nil {
			return nil, &EnvError{Backend: found.Name, Err: err}
		}
	}
	return s, nil
}

func composeError(backend string, err error) error {
	e := &EnvError{Backend: backend, Err: err, Hint: "docker with compose v2 and its daemon must run here, and reach a registry or have the images of scripts/images; or omit --env"}
	if errors.Is(err, env.ErrNoService) {
		e.Hint = fmt.Sprintf("name a server of yours: --target %s=ADDRESS", backend)
	}
	return e
}

// isKept tells whether the servers of a backend are kept ones.
func (e *environment) isKept(backend string, cfg driver.Config) bool {
	return e.kept != nil && e.kept.Servers[backend]["address"] != "" && e.kept.Servers[backend]["address"] == cfg["address"]
}

// close removes what was started in containers. Local servers belong to those
// who asked for them.
func (e *environment) close() error {
	if e.compose == nil {
		return nil
	}
	return e.compose.Close()
}
