package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/address"
)

// serverFlags say where plugins and servers are.
type serverFlags struct {
	targets, config []string
	pluginDirs      []string
}

func (f *serverFlags) add(fl *pflag.FlagSet) {
	fl.StringArrayVar(&f.targets, "target", nil, "your server: `BACKEND=ADDRESS`, =@FILE or =env:VARIABLE")
	configVar(fl, &f.config)
	pluginDirVar(fl, &f.pluginDirs)
}

func configVar(fl *pflag.FlagSet, config *[]string) {
	fl.StringArrayVar(config, "config", nil, "configure a backend: `BACKEND.KEY=VALUE` (see plugins describe)")
}

func pluginDirVar(fl *pflag.FlagSet, dirs *[]string) {
	fl.StringArrayVar(dirs, "plugin-dir", nil, "look for plugins in `DIR` first, then beside lockbench and on the PATH")
}

func mtlsVar(fl *pflag.FlagSet, mtls *string) {
	choiceVar(fl, mtls, "mtls", "on", "mutual TLS between host and plugin, `on|off`", "on", "off")
}

// The forms of --target and --config. What is of another form may be a part of
// an address, and is never shown.
var (
	targetForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)=(.+)$`)
	configForm = regexp.MustCompile(`(?s)^([a-z][a-z0-9-]*)\.([A-Za-z][A-Za-z0-9_.-]*)=(.*)$`)
)

// parse reads targets and configuration, in which --config counts more than
// the file of a target. A password that can be seen in the list of processes
// is refused in a target, and warned of elsewhere.
func (f *serverFlags) parse(stderr io.Writer) (targets map[string]string, config map[string]driver.Config, err error) {
	targets, config = map[string]string{}, map[string]driver.Config{}
	for _, t := range f.targets {
		parts := targetForm.FindStringSubmatch(t)
		if parts == nil {
			return nil, nil, hinted(usagef("--target is not of the form BACKEND=ADDRESS"), "--target redis=127.0.0.1:6379, redis=@FILE or redis=env:VARIABLE")
		}
		backend := parts[1]
		cfg, err := readTarget(backend, parts[2])
		if err != nil {
			return nil, nil, err
		}
		// A file without an address means the backend's default, as it does for
		// the application.
		targets[backend], config[backend] = cfg["address"], cfg
	}
	for _, c := range f.config {
		parts := configForm.FindStringSubmatch(c)
		if parts == nil {
			return nil, nil, hinted(usagef("--config is not of the form BACKEND.KEY=VALUE"), "--config redis.prefix=bench:")
		}
		backend, key, value := parts[1], parts[2], parts[3]
		if strings.Contains(key, "password") && !strings.HasSuffix(key, "_file") && value != "" {
			fmt.Fprintf(stderr, "warning: %s.%s can be seen in the list of processes\nhint: --target %s=@FILE or %s=env:VARIABLE keeps it out\n", backend, key, backend, backend)
		}
		if config[backend] == nil {
			config[backend] = driver.Config{}
		}
		config[backend][key] = value
		if _, ok := targets[backend]; ok && key == "address" {
			targets[backend] = value
		}
	}
	return targets, config, nil
}

// resolved finds a plugin as the function of that name does, and the
// configuration of its backend, which has no key that the plugin does not know.
func (f *serverFlags) resolved(ctx context.Context, nameOrPath string, stderr io.Writer) (plugin.Found, plugin.Description, driver.Config, error) {
	found, d, err := resolved(ctx, nameOrPath, f.pluginDirs)
	if err != nil {
		return found, d, nil, err
	}
	cfg, err := f.configOf(found.Name, stderr)
	if err != nil {
		return found, d, nil, err
	}
	return found, d, cfg, bench.CheckConfig(d, cfg)
}

// configOf is the configuration of one backend; the flags may name no other.
func (f *serverFlags) configOf(backend string, stderr io.Writer) (driver.Config, error) {
	targets, config, err := f.parse(stderr)
	if err != nil {
		return nil, err
	}
	for name := range targets {
		if name != backend {
			return nil, usagef("a target for %q, but the backend is %q", name, backend)
		}
	}
	for name := range config {
		if name != backend {
			return nil, usagef("configuration for %q, but the backend is %q", name, backend)
		}
	}
	if cfg, ok := config[backend]; ok {
		return cfg, nil
	}
	return driver.Config{}, nil
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
	if address.HasSecret(target) {
		return nil, hinted(usagef("--target %s: a password on the command line can be seen by everybody on this machine", backend),
			fmt.Sprintf("put the address into a file or a variable: --target %s=@FILE or --target %s=env:VARIABLE", backend, backend))
	}
	return driver.Config{"address": target}, nil
}

func storedTarget(backend, from string, r io.Reader) (driver.Config, error) {
	cfg, err := driver.ReadTarget(r)
	switch {
	case err != nil:
		return nil, hinted(usagef("--target %s: %s: %v", backend, from, err), "it holds an address alone, or lines KEY=VALUE as the application reads them")
	case len(cfg) == 0:
		return nil, usagef("--target %s: %s is empty", backend, from)
	}
	return cfg, nil
}
