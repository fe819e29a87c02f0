package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/servers"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// Servers says where plugins and servers are. Its strings are values of flags of the command.
type Servers struct {
	// Targets are servers of the user: BACKEND=ADDRESS, BACKEND=@FILE or BACKEND=env:VARIABLE. For a
	// backend without a target, lockbench starts throwaway servers.
	Targets []string
	// Config sets keys of plugins: BACKEND.KEY=VALUE. These keys override the keys in a target file.
	Config []string
	// Commands start throwaway servers of stores that lockbench does not know: BACKEND=COMMAND, or
	// only COMMAND if there is one backend. In a command, "{port}" stands for a free port and "{dir}"
	// for a data directory. In a value of Config, the same words tell the plugin where the server is.
	// If Config has no "{port}", lockbench sets the address key. A store that consists of files has no
	// command, but "{dir}" in Config.
	Commands []string
	// Claims lists files: BACKEND=FILE or FILE. A file says what a store of Commands does not promise.
	Claims []string
	// PluginDirs are directories to search for plugins, before lockbench's own directory and PATH.
	PluginDirs []string
	// MTLS is "off" if host and plugin do without mutual TLS.
	MTLS string

	own    map[string]bool          // backends with a target
	config map[string]driver.Config // includes the configuration of targets

	starts    bool // throwaway servers may be started, so Commands are allowed
	strangers map[string]*stranger
	claimed   []string // backends with claims
}

// The first form is also that of a command or a file of claims. If a text matches neither form, the
// error must not show the text, which may contain a password.
var (
	targetForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)=(.+)$`)
	configForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)\.([A-Za-z][A-Za-z0-9_.-]*)=(.*)$`)
)

func (s *Servers) configured() (keys []string) {
	for _, c := range s.Config {
		key, _, _ := strings.Cut(c, "=")
		keys = append(keys, key)
	}
	return keys
}

func (s *Servers) noMTLS() bool { return s.MTLS == "off" }

// read parses the flags. It refuses an address with a password on the command line, because all
// users of the machine can see the arguments of a process. For a password in Config, it only writes
// a warning. The user named the backends in parameter backends.
func (s *Servers) read(warn io.Writer, backends ...string) error {
	s.own, s.config = map[string]bool{}, map[string]driver.Config{}
	for _, t := range s.Targets {
		parts := targetForm.FindStringSubmatch(t)
		if parts == nil {
			return Hinted(usagef("--target is not of the form BACKEND=ADDRESS"), "--target BACKEND=127.0.0.1:PORT, BACKEND=@FILE or BACKEND=env:VARIABLE")
		}
		cfg, err := readTarget(parts[1], parts[2])
		if err != nil {
			return err
		}
		// If the file has no address, the plugin uses its default address.
		s.own[parts[1]], s.config[parts[1]] = true, cfg
	}
	for _, c := range s.Config {
		parts := configForm.FindStringSubmatch(c)
		if parts == nil {
			return Hinted(usagef("--config is not of the form BACKEND.KEY=VALUE"), "--config BACKEND.prefix=bench:")
		}
		backend, key, value := parts[1], parts[2], parts[3]
		if strings.Contains(key, "password") && !strings.HasSuffix(key, "_file") && value != "" {
			fmt.Fprintf(warn, "warning: %s.%s can be seen in the list of processes\nhint: --target %s=@FILE or %s=env:VARIABLE keeps it out\n", backend, key, backend, backend)
		}
		if s.config[backend] == nil {
			s.config[backend] = driver.Config{}
		}
		s.config[backend][key] = value
	}
	if !s.starts {
		return nil
	}
	return s.readStrangers(backends)
}

// The of method returns a copy of the backend's configuration, which the caller may change.
func (s Servers) of(backend string) driver.Config {
	cfg := driver.Config{}
	maps.Copy(cfg, s.config[backend])
	return cfg
}

// stray finds a backend that has settings but is not in backends. It returns "" if there is none.
func (s Servers) stray(backends []string) (what, backend string) {
	all := slices.Concat(slices.Collect(maps.Keys(s.config)), slices.Collect(maps.Keys(s.strangers)))
	slices.Sort(all)
	for _, name := range all {
		switch {
		case slices.Contains(backends, name):
		case s.own[name]:
			return "a target", name
		case s.strangers[name] != nil:
			return "a server", name
		default:
			return "configuration", name
		}
	}
	return "", ""
}

// find returns the plugins of the given backends, or all plugins if no backend is given.
func (s Servers) find(backends []string) ([]plugin.Found, error) {
	all := plugin.Discover(s.PluginDirs)
	if len(all) == 0 {
		return nil, errNoPlugins
	}
	if len(backends) == 0 {
		return all, nil
	}
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = f.Name
	}
	var out []plugin.Found
	for _, name := range unique(backends) {
		i := slices.Index(names, name)
		if i < 0 {
			return nil, unknown("backend", name, names)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// locate finds and describes a plugin by its name or its path.
func (s Servers) locate(ctx context.Context, nameOrPath string) (d described, err error) {
	if strings.ContainsRune(nameOrPath, '/') {
		d.Found = plugin.Found{Name: strings.TrimPrefix(filepath.Base(nameOrPath), "lockplugin-"), Path: nameOrPath}
		d.says, err = describe(ctx, d.Found)
		d.Name = d.says.Name
		return d, err
	}
	found, err := s.find([]string{nameOrPath})
	if err != nil {
		return d, err
	}
	d.Found = found[0]
	d.says, err = describe(ctx, d.Found)
	return d, err
}

// resolve locates a plugin, and reads its configuration. It fails if the flags have settings for
// another backend.
func (s *Servers) resolve(ctx context.Context, nameOrPath string, warn io.Writer) (d described, err error) {
	if d, err = s.locate(ctx, nameOrPath); err != nil {
		return d, err
	}
	if err := s.read(warn, d.Name); err != nil {
		return d, err
	}
	if what, name := s.stray([]string{d.Name}); name != "" {
		return d, usagef("%s for %q, but the backend is %q", what, name, d.Name)
	}
	if err := s.meet(d); err != nil {
		return d, err
	}
	d.config = s.of(d.Name)
	return d, checkConfig(d.says, d.config)
}

func readTarget(backend, target string) (driver.Config, error) {
	if path, ok := strings.CutPrefix(target, "@"); ok {
		file, err := os.Open(path)
		if err != nil {
			return nil, usagef("--target %s=@FILE: %v", backend, err)
		}
		defer file.Close()
		return storedTarget(backend, path, file)
	}
	if name, ok := strings.CutPrefix(target, "env:"); ok {
		text := os.Getenv(name)
		if text == "" {
			return nil, usagef("--target %s=env:%s: the variable is not set", backend, name)
		}
		return storedTarget(backend, "the variable", strings.NewReader(text))
	}
	if hasSecret(target) {
		return nil, Hinted(usagef("--target %s: a password on the command line can be seen by every user of this machine", backend),
			fmt.Sprintf("put the address into a file or a variable: --target %s=@FILE or --target %s=env:VARIABLE", backend, backend))
	}
	return driver.Config{"address": target}, nil
}

func storedTarget(backend, from string, r io.Reader) (driver.Config, error) {
	cfg, err := driver.ReadTarget(r)
	switch {
	case err != nil:
		return nil, Hinted(usagef("--target %s: %s: %v", backend, from, err), "it holds an address alone, or lines KEY=VALUE as the application reads them")
	case len(cfg) == 0:
		return nil, usagef("--target %s: %s is empty", backend, from)
	}
	return cfg, nil
}

// shownAddress returns addresses without user names and passwords.
func shownAddress(address string) string {
	parts := splitAddresses(address)
	for i, p := range parts {
		scheme := addressScheme.FindString(p)
		parts[i] = scheme + withoutUser(p[len(scheme):])
	}
	return strings.Join(parts, ",")
}

var addressScheme = regexp.MustCompile(`^[a-z]+://`)

// splitAddresses splits a list at its commas, but not at a comma in a password. A comma belongs to
// a password if an "@" follows before the next scheme, such as "http://".
func splitAddresses(list string) []string {
	var out []string
	for p := range strings.SplitSeq(list, ",") {
		p = strings.TrimSpace(p)
		if strings.Contains(p, "@") && !addressScheme.MatchString(p) {
			from := max(0, len(out)-1)
			for from > 0 && !addressScheme.MatchString(out[from]) {
				from--
			}
			p = strings.Join(append(out[from:], p), ",")
			out = out[:from]
		}
		out = append(out, p)
	}
	return out
}

// plainAddress matches an address that has neither a user nor a query.
var plainAddress = regexp.MustCompile(`^[\pL\pN.:/()\[\]~%_-]*$`)

// withoutUser removes "user:password@" from an address, and the query, which may have a password.
// If the "@" may be part of the query, or the rest is no plain address, withoutUser returns "...".
func withoutUser(s string) string {
	at, query := strings.LastIndexByte(s, '@'), strings.IndexByte(s, '?')
	if query >= 0 && query < at {
		return "..."
	}
	if s, _, _ = strings.Cut(s[at+1:], "?"); !plainAddress.MatchString(s) {
		return "..."
	}
	return s
}

func hasSecret(address string) bool {
	for _, p := range splitAddresses(address) {
		rest := p[len(addressScheme.FindString(p)):]
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			if _, password, ok := strings.Cut(rest[:i], ":"); ok && password != "" {
				return true
			}
		}
		_, query, _ := strings.Cut(rest, "?")
		values, _ := url.ParseQuery(query) // values that cannot be parsed are left out
		if values.Has("password") {
			return true
		}
	}
	return false
}

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
