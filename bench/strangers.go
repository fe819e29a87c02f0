package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// stranger says how to start a store unknown to lockbench, and what the store does not promise.
type stranger struct {
	command string // "" for a store that consists of files
	claims  claim.Terms
}

// readStrangers reads the flags --server and --claims, which describe stores unknown to lockbench.
func (s *Servers) readStrangers(only []string) error {
	s.strangers = map[string]*stranger{}
	for _, c := range s.Commands {
		name, command, err := forBackend("--server", c, only)
		switch {
		case err != nil:
			return err
		case s.strangers[name] != nil:
			return usagef("--server: two commands for %s", name)
		case s.own[name]:
			return usagef("%s has --server and --target: lockbench breaks the one, and leaves the other alone", name)
		case !strings.Contains(command, servers.PortPlace):
			return Hinted(usagef("--server: the command for %s has no %s", name, servers.PortPlace), "several of it run at the same time, each on a free port of 127.0.0.1")
		}
		s.strangers[name] = &stranger{command: command}
	}
	for name, cfg := range s.config {
		if s.strangers[name] == nil && !s.own[name] && !kinds.Of(name).Known() && len(placed(cfg, servers.DirPlace)) > 0 {
			s.strangers[name] = &stranger{}
		}
	}
	for _, c := range s.Claims {
		name, file, err := forBackend("--claims", c, only)
		if err != nil {
			return err
		}
		if s.strangers[name] == nil {
			return usagef("--claims: those of %s are judged on throwaway servers, which no --server %s=COMMAND starts", name, name)
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &s.strangers[name].claims)
		}
		if err != nil {
			return Hinted(usagef("--claims: %s: %v", file, err), "docs/safety.md says what the rules and conditions are; \"double grant\" and \"late grant\" are several")
		}
		s.claimed = append(s.claimed, name)
	}
	return nil
}

// forBackend splits "BACKEND=TEXT". Without "BACKEND=", the user must have named only one backend.
func forBackend(flag, text string, only []string) (backend, what string, err error) {
	if parts := targetForm.FindStringSubmatch(text); parts != nil {
		return parts[1], parts[2], nil
	}
	if len(only) != 1 {
		return "", "", Hinted(usagef("%s %q does not say for which backend, and there may be several", flag, text), flag+" BACKEND=..., or --backends with one")
	}
	return only[0], text, nil
}

func placed(cfg driver.Config, places ...string) driver.Config {
	out := driver.Config{}
	for key, value := range cfg {
		if slices.ContainsFunc(places, func(p string) bool { return strings.Contains(value, p) }) {
			out[key] = value
		}
	}
	return out
}

// meetAll calls meet for each store that lockbench does not know.
func (s *Servers) meetAll(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.strangers)) {
		d, err := s.locate(ctx, name)
		if err == nil {
			err = s.meet(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// If Config has no "{port}", the first of these keys that the plugin has gets the server's address.
var addressKeys = []string{"address", "addresses"}

// meet registers the plugin's store with package kinds. It removes keys with placeholders from the
// plugin's configuration, because each server gets its own values for these keys.
func (s *Servers) meet(d described) error {
	of := s.strangers[d.Name]
	if of == nil {
		return nil
	}
	if slices.Contains(kinds.Names(), d.Name) {
		return usagef("--server: lockbench starts servers for %s without being told how", d.Name)
	}
	keys := placed(s.config[d.Name], servers.PortPlace, servers.DirPlace)
	if of.command != "" && len(placed(keys, servers.PortPlace)) == 0 {
		i := slices.IndexFunc(addressKeys, func(key string) bool { return d.takes(key) != nil })
		if i < 0 {
			return Hinted(usagef("--server: the plugin of %s takes none of %s", d.Name, strings.Join(addressKeys, ", ")),
				fmt.Sprintf("--config '%s.KEY=127.0.0.1:%s' says which key has the address of the server", d.Name, servers.PortPlace))
		}
		keys[addressKeys[i]] = "127.0.0.1:" + servers.PortPlace
	}
	rest := s.of(d.Name)
	sample := maps.Clone(rest)
	for key, value := range keys {
		delete(rest, key)
		sample[key] = strings.NewReplacer(servers.PortPlace, "1", servers.DirPlace, "/").Replace(value)
	}
	if err := checkConfig(d.says, sample); err != nil {
		return err
	}
	s.config[d.Name] = rest
	open := func(ctx context.Context, cfg driver.Config) (func(context.Context) error, func() error, error) {
		all := maps.Clone(rest)
		maps.Copy(all, cfg)
		return asking(ctx, d, &plugin.Options{Path: d.Path, Config: all, NoMTLS: s.noMTLS(), StartTimeout: startTimeout})
	}
	kinds.Add(servers.Stranger{Line: of.command, Keys: keys, Forgets: of.claims.Forgets, Open: open}.Kind(d.Name))
	return nil
}

// asking starts the plugin. The returned function check asks the store, and returns nil if the
// store answers. The returned function end ends the plugin.
func asking(ctx context.Context, d described, o *plugin.Options) (check func(context.Context) error, end func() error, err error) {
	b, err := plugin.Open(ctx, d.Name, o)
	if err != nil {
		return nil, nil, err
	}
	check = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		return b.Check(ctx)
	}
	end = func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return b.Close(ctx)
	}
	return check, end, nil
}

func (s *Servers) claims(backend string) *claim.Terms {
	if of := s.strangers[backend]; of != nil {
		return &of.claims
	}
	return nil
}
