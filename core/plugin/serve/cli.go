package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/internal/similar"
)

var errUsage = errors.New("usage")

// command executes the command line in args. The exit code is 0 for success, 2 for a wrong command
// line or configuration, and 1 for another failure or if args is empty.
func command(ctx context.Context, spec driver.Spec, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		greet(stderr, spec)
		return 1
	}
	err := dispatch(ctx, spec, args[0], args[1:], stdin, stdout)
	if err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "%s%s: %v\n", wire.Prefix, spec.Name, err)
	if errors.Is(err, errUsage) || errors.Is(err, driver.ErrConfig) {
		return 2
	}
	return 1
}

func dispatch(ctx context.Context, spec driver.Spec, name string, args []string, stdin io.Reader, stdout io.Writer) error {
	known := []string{"describe", "--version", "--help"}
	switch name {
	case "describe":
		return describe(spec, args, stdout)
	case "--version":
		_, err := fmt.Fprintf(stdout, "%s%s %s (protocols %s)\n", wire.Prefix, spec.Name, version(), words(wire.Versions()))
		return err
	case "--help", "-h", "help":
		greet(stdout, spec)
		return nil
	}
	for _, c := range spec.Commands {
		if c.Name == name {
			return runCommand(ctx, spec, c, args, stdin, stdout)
		}
		known = append(known, c.Name)
	}
	return fmt.Errorf("%w: unknown command %q%s", errUsage, name, similar.Suggest(name, known))
}

func runCommand(ctx context.Context, spec driver.Spec, c driver.Command, args []string, stdin io.Reader, stdout io.Writer) error {
	raw, err := commandConfig(spec, c, args, stdin)
	if err != nil {
		return err
	}
	cfg, err := spec.CheckConfig(raw)
	if err != nil {
		return fmt.Errorf("%w; try: %s", err, invocation(spec, c))
	}
	if err := c.Run(ctx, cfg, stdout); err != nil {
		redact := &wire.Redactor{}
		redact.SetConfig(cfg, secretKey(spec))
		return redacted{redact.Text(err.Error()), errors.Is(err, driver.ErrConfig)}
	}
	return nil
}

// redacted is an error of a command, without the secrets of the configuration.
type redacted struct {
	text   string
	config bool // it wraps driver.ErrConfig
}

func (e redacted) Error() string        { return e.text }
func (e redacted) Is(target error) bool { return e.config && target == driver.ErrConfig }

// commandConfig reads the configuration of a command from a file, from arguments,
// or from lines on standard input.
func commandConfig(spec driver.Spec, c driver.Command, args []string, stdin io.Reader) (driver.Config, error) {
	refuse := func(what string) error {
		return fmt.Errorf("%w: %s; %s takes the configuration as --KEY=VALUE, as --config FILE of lines KEY=VALUE, or as such lines on standard input: %s",
			errUsage, what, c.Name, invocation(spec, c))
	}
	if len(args) == 2 && args[0] == "--config" {
		f, err := os.Open(args[1])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errUsage, err)
		}
		defer f.Close()
		return driver.ReadTarget(f)
	}
	if f, ok := stdin.(*os.File); ok && len(args) == 0 {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return nil, refuse("no configuration") // a read from a terminal would wait for input
		}
	}
	if len(args) == 0 {
		return driver.ReadConfig(stdin)
	}
	raw := driver.Config{}
	for _, arg := range args {
		key, value, ok := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		switch {
		case !strings.HasPrefix(arg, "--") || !ok:
			return nil, refuse(fmt.Sprintf("%q is not of the form --KEY=VALUE", arg))
		case strings.Contains(value, "@"), slices.ContainsFunc(spec.Keys, func(k driver.Key) bool { return k.Secret && k.Name == key }):
			return nil, refuse(key + " on the command line can be seen by every user of this machine")
		}
		raw[key] = value
	}
	return raw, nil
}

// invocation returns an example of a command line that runs the command c with all required keys.
func invocation(spec driver.Spec, c driver.Command) string {
	words := []string{wire.Prefix + spec.Name, c.Name}
	for _, k := range spec.Keys {
		switch {
		case k.Required && k.Secret: // arguments may not have it
			return wire.Prefix + spec.Name + " " + c.Name + " --config FILE"
		case k.Required && k.Type == driver.TypeList:
			words = append(words, "--"+k.Name+"=HOST:PORT,HOST:PORT,HOST:PORT")
		case k.Required:
			words = append(words, "--"+k.Name+"=VALUE")
		}
	}
	return strings.Join(words, " ")
}

func describe(spec driver.Spec, args []string, stdout io.Writer) error {
	d := wire.Describe(spec, version())
	switch {
	case len(args) == 0:
		return describeText(d, stdout)
	case len(args) == 1 && args[0] == "--json":
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(d)
	}
	return fmt.Errorf("%w: unknown argument %q%s", errUsage, args[0], similar.Suggest(args[0], []string{"--json"}))
}

func describeText(d wire.Description, stdout io.Writer) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	p := d.Properties
	fmt.Fprintf(w, "%s: %s\n\n", d.Name, d.Doc)
	fmt.Fprintf(w, "version\t%s\nprotocols\t%s\n", d.Version, words(d.Protocols))
	fmt.Fprintf(w, "fencing\t%s\nscope\t%s\ndurability\t%s\n", p.Fencing, p.Scope, p.Durability)
	fmt.Fprintf(w, "ttl\t%s to %s, in steps of %s\n", p.TTLMin, p.TTLMax, p.TTLStep)
	fmt.Fprintf(w, "fifo\t%t\nsurvives plugin\t%t\ncapabilities\t%s\n", p.FIFO, p.SurvivesPlugin, words(p.Capabilities))
	fmt.Fprint(w, "\nKEY\tTYPE\tDEFAULT\t\tMEANING\n")
	for _, k := range d.Keys {
		var marks []string
		if k.Required {
			marks = append(marks, "required")
		}
		if k.Secret {
			marks = append(marks, "secret")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", k.Name, k.Type, k.Default, strings.Join(marks, ", "), k.Doc)
	}
	if len(d.Commands) > 0 {
		fmt.Fprint(w, "\nCOMMAND\tMEANING\n")
	}
	for _, c := range d.Commands {
		fmt.Fprintf(w, "%s\t%s\n", c.Name, c.Doc)
	}
	return w.Flush()
}

func words[V any](values []V) string {
	text := make([]string, len(values))
	for i, v := range values {
		text[i] = fmt.Sprint(v)
	}
	return strings.Join(text, ", ")
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
