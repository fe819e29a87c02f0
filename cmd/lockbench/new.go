package main

import (
	"embed"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"golang.org/x/mod/modfile"
)

//go:embed skeleton
var skeletons embed.FS

// skeleton is what the templates are filled with.
type skeleton struct {
	Name    string // of the backend: "my-store"
	Package string // "mystore"
	Import  string // import path of the package
	Go      string // version of the language
	Replace string // a checkout of lockbench to build against; "" for a release
}

func pluginsNewCommand() *cobra.Command {
	var dir, module, replace string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the skeleton of a backend in Go, with its conformance test",
		Long: `new writes a package that compiles, its plugin's main and a test that runs the
conformance suite. The test is red until the operations are written; the text
docs/authoring.md leads from there to a green one.

Inside a Go module the package becomes part of it, elsewhere it gets a module of
its own. No file is ever overwritten.`,
		Example: `  lockbench plugins new my-store
  lockbench plugins new my-store -o backends/mystore --module example.com/mystore`,
		Args: oneArg("name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s := skeleton{Name: args[0], Replace: replace, Go: strings.TrimPrefix(latestGo(), "go")}
			if dir == "" {
				dir = args[0]
			}
			files, err := s.write(dir, module)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, f := range files {
				fmt.Fprintln(out, "wrote", f)
			}
			fmt.Fprintf(out, "\nnext, in %s:\n", dir)
			if files[0] == filepath.Join(dir, "go.mod") {
				fmt.Fprintln(out, "  go mod tidy")
			}
			fmt.Fprintf(out, "  go test ./...    # what is still to be written\n  go build -o bin/ ./lockplugin-%[1]s && lockbench conform bin/lockplugin-%[1]s --target %[1]s=ADDRESS\n", s.Name)
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&dir, "output", "o", "", "write into `DIR` (default NAME)")
	fl.StringVar(&module, "module", "", "`PATH` of the new module (default example.com/lockplugin-NAME)")
	fl.StringVar(&replace, "replace", "", "build against the checkout of lockbench in `DIR`")
	return cmd
}

// Base is the last element of the import path, which may differ from Package.
func (s skeleton) Base() string { return path.Base(s.Import) }

// latestGo is the language version of this build, "go1.26".
func latestGo() string { return build.Default.ReleaseTags[len(build.Default.ReleaseTags)-1] }

var pluginName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// write writes the skeleton into dir and returns the paths of its files.
func (s *skeleton) write(dir, module string) ([]string, error) {
	if !pluginName.MatchString(s.Name) {
		return nil, usagef("%q is not a name of a backend: small letters, digits and hyphens, a letter first", s.Name)
	}
	s.Package = strings.ReplaceAll(s.Name, "-", "")
	files := [][2]string{
		{s.Package + ".go", "backend.go.tmpl"},
		{s.Package + "_test.go", "backend_test.go.tmpl"},
		{filepath.Join("lockplugin-"+s.Name, "main.go"), "main.go.tmpl"},
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
		s.Import = module
		if module == "" {
			s.Import = "example.com/lockplugin-" + s.Name
		}
		if s.Replace != "" {
			if s.Replace, err = filepath.Abs(s.Replace); err != nil {
				return nil, err
			}
		}
		files = append([][2]string{{"go.mod", "go.mod.tmpl"}}, files...)
	}
	var written []string
	for _, f := range files {
		target := filepath.Join(dir, f[0])
		if err := s.fill(target, f[1]); err != nil {
			return nil, err
		}
		written = append(written, target)
	}
	return written, nil
}

func (s *skeleton) fill(target, name string) error {
	t, err := template.ParseFS(skeletons, path.Join("skeleton", name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return hinted(usagef("%s is there already", target), "name another directory with -o")
	}
	if err != nil {
		return err
	}
	return errors.Join(t.Execute(f, s), f.Close())
}

// importPath is that of a package in dir within the module around it, "" when
// there is none.
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
