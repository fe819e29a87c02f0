package bench

import (
	"context"
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
)

// Servers says where plugins and servers are. The fields have the syntax of the flags.
type Servers struct {
	// Targets are the caller's servers, as BACKEND=ADDRESS, BACKEND=@FILE or
	// BACKEND=env:VARIABLE. The other backends get throwaway servers.
	Targets []string
	// Config is further configuration: BACKEND.KEY=VALUE. It overrides what the file
	// of a target says.
	Config []string
	// Commands start throwaway servers of stores that lockbench does not know:
	// BACKEND=COMMAND, or COMMAND where there is one backend. "{port}" and "{dir}" stand
	// for a free port and a data directory, also in values of Config, which tell the
	// plugin where the server is. If no value has "{port}", lockbench sets key address.
	// A store that consists of files has "{dir}" in Config, and no command.
	Commands []string
	// Claims are files that say what the stores of Commands do not promise: BACKEND=FILE, or FILE.
	Claims []string
	// PluginDirs are searched before the directory of the executable and PATH.
	PluginDirs []string

	own    map[string]bool          // backends with a target
	config map[string]driver.Config // includes the configuration of targets

	starts    bool // the command starts throwaway servers, so Commands are allowed
	noMTLS    bool // applies to the plugins that check whether servers answer
	strangers map[string]*stranger
	claimed   []string // backends with claims
}

// These are the forms of targets and configuration. Text of another form is never
// shown, because it may be part of an address with a password.
var (
	targetForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)=(.+)$`)
	configForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)\.([A-Za-z][A-Za-z0-9_.-]*)=(.*)$`)
)

// configured are the keys that Config sets, as BACKEND.KEY.
func (s *Servers) configured() (keys []string) {
	for _, c := range s.Config {
		key, _, _ := strings.Cut(c, "=")
		keys = append(keys, key)
	}
	return keys
}

// read reads targets and configuration. It refuses a password in an address that stands on
// the command line, which the process list shows. It only warns of a password in Config.
// The argument backends lists the backends that the user named.
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
		// If a file has no address, the backend uses its default address, as it
		// does in an application.
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

// of returns a copy of a backend's configuration. The caller may change the copy.
func (s Servers) of(backend string) driver.Config {
	cfg := driver.Config{}
	maps.Copy(cfg, s.config[backend])
	return cfg
}

// stray finds a setting for a backend that is not among backends. It returns the kind of the
// setting and that backend.
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

// find returns the plugin binaries of backends, or all plugin binaries if backends is empty.
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

// resolve finds one plugin by its name or by its path, and asks it for its
// description. Settings for another backend are an error.
func (s *Servers) resolve(ctx context.Context, nameOrPath string, warn io.Writer) (d described, err error) {
	isPath := strings.ContainsRune(nameOrPath, '/')
	d.Found = plugin.Found{Name: strings.TrimPrefix(filepath.Base(nameOrPath), "lockplugin-"), Path: nameOrPath}
	if !isPath {
		found, err := s.find([]string{nameOrPath})
		if err != nil {
			return d, err
		}
		d.Found = found[0]
	}
	if d.says, err = describe(ctx, d.Found); err != nil {
		return d, err
	}
	if isPath {
		d.Name = d.says.Name
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

// readTarget returns the configuration that a target stands for: an address on
// the command line, or what driver.ReadTarget reads in a file or a variable.
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
			return nil, usagef("--target %s: the variable is not set", backend)
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

// shownAddress returns an address, or a list of them, without user names and passwords.
func shownAddress(address string) string {
	parts := splitAddresses(address)
	for i, p := range parts {
		scheme := addressScheme.FindString(p)
		parts[i] = scheme + withoutUser(p[len(scheme):])
	}
	return strings.Join(parts, ",")
}

// addressScheme finds the scheme of an address.
var addressScheme = regexp.MustCompile(`^[a-z]+://`)

// splitAddresses splits a list. A comma is part of a password if an "@" follows
// before the next scheme.
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

// plainAddress matches an address without user and query.
var plainAddress = regexp.MustCompile(`^[\pL\pN.:/()\[\]~%_-]*$`)

// withoutUser cuts "user:password@" and the query, because the query may hold a
// password too. It returns only "..." if an "@" may be part of the query, or if the
// text looks like a setting rather than an address.
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

// hasSecret reports whether an address holds a password.
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
