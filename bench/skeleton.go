package bench

import (
	"cmp"
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

	"golang.org/x/mod/modfile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"

	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

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
