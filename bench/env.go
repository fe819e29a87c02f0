package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
)

// EnvError is a server or plugin that cannot be used. It names the cause and
// the address, and no secret.
type EnvError struct {
	Backend string // "" when it is none in particular
	Hint    string // what to do; may be empty
	Err     error
}

func (e *EnvError) Error() string {
	text := e.Err.Error()
	if e.Backend == "" || strings.HasPrefix(text, e.Backend+":") || strings.HasPrefix(text, "plugin ") {
		return text // it says already what it is about
	}
	return e.Backend + ": " + text
}

// Unwrap returns the cause.
func (e *EnvError) Unwrap() error { return e.Err }

// Servers are the throwaway servers of one backend.
type Servers struct {
	// Config is with what the backend finds them.
	Config driver.Config
	// All of them, in the order of their addresses; none for a backend that
	// has no server, or has it in containers.
	All        []*env.Server
	Containers []*env.Container
	// Admit lets servers that were started, or started again, serve at once,
	// where they would not by themselves. It may be called for all backends.
	Admit func(ctx context.Context) error
}

// Close closes all servers.
func (s *Servers) Close() error {
	var errs []error
	for _, one := range s.All {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// starters start the throwaway servers of each backend that has any. Durable
// servers keep their data over a crash.
var starters = map[string]func(ctx context.Context, durable bool) (*Servers, error){
	"memory": func(context.Context, bool) (*Servers, error) { return &Servers{Config: driver.Config{}}, nil },
	"redis": func(ctx context.Context, durable bool) (*Servers, error) {
		s, err := env.StartRedis(ctx, redisOptions(durable))
		return single(s, err, (*env.Server).Addr)
	},
	"redlock": func(ctx context.Context, durable bool) (*Servers, error) {
		opts := redisOptions(durable)
		if durable {
			// Five servers that flush every write to one disk would miss node_timeout.
			opts.AppendFsync = env.FsyncEverySec
		}
		nodes, err := env.StartRedisNodes(ctx, redlockNodes, opts)
		if err != nil {
			return nil, err
		}
		cfg := driver.Config{"address": nodes.Addr()}
		if durable {
			// Nor does the suite, which shares the machine with them, leave them 50 ms.
			cfg["node_timeout"] = "200ms"
		}
		return &Servers{Config: cfg, All: nodes}, nil
	},
	"mysql": func(ctx context.Context, _ bool) (*Servers, error) {
		s, err := env.StartMariaDB(ctx, nil)
		return single(s, err, env.MariaDBAddress)
	},
	"etcd": func(ctx context.Context, _ bool) (*Servers, error) {
		s, err := env.StartEtcd(ctx, nil)
		return single(s, err, (*env.Server).Addr)
	},
}

// redlockNodes is how many nodes redlock is given: two may fail.
const redlockNodes = 5

func redisOptions(durable bool) *env.RedisOptions {
	if durable {
		return &env.RedisOptions{AppendFsync: env.FsyncAlways}
	}
	return nil
}

func single(s *env.Server, err error, address func(*env.Server) string) (*Servers, error) {
	if err != nil {
		return nil, err
	}
	return &Servers{Config: driver.Config{"address": address(s)}, All: []*env.Server{s}}, nil
}

// StartServers starts the throwaway servers of the backend whose plugin was
// found, and lets them serve. Of products that can do without durability, the
// others are faster.
func StartServers(ctx context.Context, found plugin.Found, durable bool) (*Servers, error) {
	start, ok := starters[found.Name]
	if !ok {
		return nil, &EnvError{
			Backend: found.Name,
			Err:     errors.New("lockbench has no throwaway server for it"),
			Hint:    fmt.Sprintf("name one of yours: --target %s=ADDRESS", found.Name),
		}
	}
	s, err := start(ctx, durable)
	if err != nil {
		return nil, serverError(found.Name, err)
	}
	s.Admit = func(context.Context) error { return nil }
	if found.Name == "redlock" {
		// Fresh nodes would not vote before max_ttl has passed.
		s.Admit = func(ctx context.Context) error { return env.Nodes(s.All).Init(ctx, found.Path) }
	}
	if err := s.Admit(ctx); err != nil {
		return nil, errors.Join(&EnvError{Backend: found.Name, Err: err}, s.Close())
	}
	return s, nil
}

func serverError(backend string, err error) error {
	e := &EnvError{Backend: backend, Err: err}
	var missing *env.NotInstalledError
	if errors.As(err, &missing) {
		e.Err = fmt.Errorf("%s is not installed", missing.Program)
		e.Hint = missing.How() + fmt.Sprintf("; or name a server of yours: --target %s=ADDRESS", backend)
	}
	return e
}
