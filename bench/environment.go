package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
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
