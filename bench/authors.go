package bench

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"go/build"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"golang.org/x/mod/modfile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
	"github.com/lockbench/lockbench/internal/conform"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

type ConformPlan struct {
	Servers
	Plugin string // name or path
	// Require makes Conform fail if a conformance rule that applies to the plugin was not checked.
	Require bool
	// Rules receives one line for each rule as soon as the rule's result is known, and then the rule's
	// failed test cases. If AllCases is set, all test cases of the rule follow the line.
	Rules    io.Writer
	AllCases bool
}

// sweepTimeout limits the time in which lockbench removes its own data from the user's server.
const sweepTimeout = 30 * time.Second

// Conform runs the conformance suite.
func Conform(ctx context.Context, p ConformPlan, opts Options) (o *Outcome, err error) {
	p.starts = true
	d, err := p.resolve(ctx, p.Plugin, opts.Lines)
	if err != nil {
		return nil, err
	}
	suite := conform.Options{Name: d.Name, Path: d.Path, Config: d.config, Namespaces: d.takes("prefix") != nil, NoMTLS: p.noMTLS()}
	// Start throwaway servers if flags say how, or if the plugin takes an address and got none.
	if p.strangers[d.Name] != nil || len(p.Targets) == 0 && d.config["address"] == "" && d.takes("address") != nil {
		servers, err := new(environment).start(ctx, d.Found, true)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.Close()) }()
		maps.Copy(d.config, servers.Config)
		suite.Servers = servers
	} else if prefix := d.ownPrefix(); prefix != "" {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTimeout)
			defer cancel()
			err = errors.Join(err, kinds.Of(d.Name).Sweep(ctx, d.config, prefix))
		}()
	}
	opts.Progress.Begin(len(drivertest.Rules()), 0)
	defer opts.Progress.End()
	opts.Progress.Step("")
	var all []drivertest.RuleResult
	err = conform.Run(ctx, suite, func(r drivertest.RuleResult) {
		all = append(all, r)
		p.show(r)
		opts.Progress.Step("after " + r.Rule.ID)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ErrInterrupted
	case err != nil:
		return nil, &EnvError{Backend: d.Name, Err: err}
	}
	return conformed(all, p.Require)
}

func (p ConformPlan) show(r drivertest.RuleResult) {
	fmt.Fprintln(p.Rules, r)
	for _, c := range r.Cases {
		if !p.AllCases && c.Outcome != drivertest.Fail {
			continue
		}
		fmt.Fprintf(p.Rules, "      %-8s %s (%.1f s)", c.Outcome, c.Case.Name, c.Took.Seconds())
		if c.Reason != "" {
			fmt.Fprintf(p.Rules, ": %s", c.Reason)
		}
		fmt.Fprintln(p.Rules)
		for line := range strings.Lines(c.Log) {
			fmt.Fprintf(p.Rules, "          %s\n", strings.TrimRight(line, "\n"))
		}
	}
}

func conformed(results []drivertest.RuleResult, require bool) (*Outcome, error) {
	var counts [drivertest.NotRun + 1]int
	for _, r := range results {
		counts[r.Outcome]++
	}
	all, passed, failed, notRun := len(drivertest.Rules()), counts[drivertest.Pass], counts[drivertest.Fail], counts[drivertest.NotRun]
	o := &Outcome{text: fmt.Sprintf("%d of %d rules ran: %d passed, %d failed; %d could not be checked, %d do not apply\n",
		passed+failed, all, passed, failed, notRun, counts[drivertest.NA])}
	switch {
	case failed > 0:
		return o, fmt.Errorf("the plugin does not conform: %d of %d rules fail", failed, all)
	case notRun > 0 && require:
		return o, Hinted(fmt.Errorf("%d of %d rules could not be checked, and all that apply are required", notRun, all),
			"let it start a server of its own, or --require=false")
	}
	return o, nil
}

//go:embed skeleton
var skeletons embed.FS

// skeleton has the values that the templates of a new plugin need.
type skeleton struct {
	Name    string // of the backend: "my-store"
	Package string // "mystore"
	Import  string // import path of the package
	Go      string // version of the language
	Replace string // a checkout of lockbench to build against; "" for a release
}

// Languages are the languages in which [NewPlugin] can write a plugin.
var Languages = []string{"go", "python"}

// Descriptor returns the file descriptor of lock.proto as a Python literal.
func (s skeleton) Descriptor() (string, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(lockpb.File_lock_proto))
	return `b"\x` + strings.ReplaceAll(fmt.Sprintf("% x", b), " ", `\x`) + `"`, err
}

// NewPlugin writes the skeleton of a backend, with its plugin and its test, into the directory dir.
// By default, dir is the backend's name. The language is one of [Languages]. If dir is in no Go
// module, NewPlugin makes a new module, with the path in parameter module. The new module uses the
// checkout of lockbench in the directory replace or, if replace is empty, a release of lockbench.
// If cas is set, the backend uses package cas.
func NewPlugin(name, lang string, cas bool, dir, module, replace string) (*Outcome, error) {
	releases := build.Default.ReleaseTags // "go1.1" to the release of this build
	s := skeleton{Name: name, Package: strings.ReplaceAll(name, "-", ""), Replace: replace, Go: strings.TrimPrefix(releases[len(releases)-1], "go")}
	dir = cmp.Or(dir, name)
	files, err := s.files(lang, cas, dir, module)
	if err != nil {
		return nil, err
	}
	o := new(Outcome)
	for _, f := range files {
		target := filepath.Join(dir, f[0])
		if err := s.fill(target, f[1]); err != nil {
			return nil, err
		}
		o.text += "wrote " + target + "\n"
	}
	o.text += fmt.Sprintf("\nnext, in %s:\n", dir)
	if lang == "python" {
		o.text += fmt.Sprintf("  lockbench conform ./lockplugin-%[1]s --mtls=off --config '%[1]s.path={dir}/locks.db'\n", name)
		return o, nil
	}
	if files[0][0] == "go.mod" {
		o.text += "  go mod tidy\n"
	}
	o.text += fmt.Sprintf("  go test ./...    # what is still to be written\n  go build -o bin/ ./lockplugin-%[1]s && lockbench conform bin/lockplugin-%[1]s --server 'COMMAND -p {port} -d {dir}'\n", name)
	return o, nil
}

// Base returns the last element of the import path, which can differ from the Package field.
func (s skeleton) Base() string { return path.Base(s.Import) }

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// files returns the names of the files to write, and of their templates.
func (s *skeleton) files(lang string, cas bool, dir, module string) ([][2]string, error) {
	if !pluginName.MatchString(s.Name) {
		return nil, usagef("%q is not a name of a backend: small letters, digits and hyphens, a letter first", s.Name)
	}
	if lang == "python" {
		if module != "" || s.Replace != "" || cas {
			return nil, usagef("--cas, --module and --replace are of Go")
		}
		return [][2]string{
			{"lockplugin-" + s.Name, "python/plugin.tmpl"}, {"store.py", "python/store.py.tmpl"},
			{"lockplugin.py", "python/lockplugin.py.tmpl"}, {"lock_pb2.py", "python/lock_pb2.py.tmpl"},
		}, nil
	}
	backend := "backend.go.tmpl"
	if cas {
		backend = "cas.go.tmpl"
	}
	files := [][2]string{
		{s.Package + ".go", backend},
		{s.Package + "_test.go", "backend_test.go.tmpl"},
		{filepath.Join("lockplugin-"+s.Name, "main.go"), "main.go.tmpl"},
		{"claims.json", "claims.json.tmpl"},
	}
	inside, err := importPath(dir)
	switch {
	case err != nil:
		return nil, err
	case inside != "" && module != "":
		return nil, usagef("--module %s: %s is part of a module already, as %s", module, dir, inside)
	case inside != "":
		s.Import = inside
	default:
		s.Import = cmp.Or(module, "example.com/lockplugin-"+s.Name)
		if s.Replace != "" {
			if s.Replace, err = filepath.Abs(s.Replace); err != nil {
				return nil, err
			}
		}
		files = append([][2]string{{"go.mod", "go.mod.tmpl"}}, files...)
	}
	return files, nil
}

func (s *skeleton) fill(target, name string) error {
	t, err := template.ParseFS(skeletons, path.Join("skeleton", name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if t.Name() == "plugin.tmpl" {
		mode = 0o755 // the file is executed directly
	}
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return Hinted(usagef("%s is there already", target), "name another directory with -o")
	}
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(f, s), f.Close())
}

// importPath returns the import path of a package in dir, or "" if dir is in no module.
func importPath(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for root := dir; ; root = filepath.Dir(root) {
		text, err := os.ReadFile(filepath.Join(root, "go.mod"))
		if err == nil {
			below, err := filepath.Rel(root, dir)
			return path.Join(modfile.ModulePath(text), filepath.ToSlash(below)), err
		}
		if root == filepath.Dir(root) {
			return "", nil
		}
	}
}
