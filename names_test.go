package lockbench_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// storeNames matches names of backends. It omits "memory", which has other meanings.
var storeNames = regexp.MustCompile(`(?i)redis|redlock|mysql|mariadb|postgres|etcd`)

// namesStores lists the parts of the benchmark, besides internal/servers, that may name a backend.
// It maps the beginning of each part's path to the reason.
var namesStores = map[string]string{
	"bench/internal/baseline/":       "a baseline is another library for the server of one backend",
	"bench/internal/faults/planted/": "it is a backend, with bugs",
	"internal/claim/":                "it has a file of what each backend does not promise",
	"bench/internal/faults/doc.go":   "titles of works",
	"internal/configtest/":           "it has addresses in the form of each backend",
}

// TestStoresAreNamedOnce checks that no part of the benchmark outside namesStores names a store.
// The other parts must use package kinds.
func TestStoresAreNamedOnce(t *testing.T) {
	for _, dir := range []string{"bench", "cmd", "internal"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for prefix := range namesStores {
				if strings.HasPrefix(path, prefix) {
					return nil
				}
			}
			return namedIn(path, nil, func(name string) { t.Errorf("%s names a store: %q", path, name) })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// namedIn reads a Go file, and calls found for each name of a backend. In internal/servers and cmd,
// whose help has examples, only a string that equals a name counts, and a backend's own folder may
// name the backend. Elsewhere, a name in any string, identifier, import or comment counts.
func namedIn(path string, source any, found func(name string)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ParseComments)
	if err != nil {
		return err
	}
	if lenient := strings.HasPrefix(path, "internal/servers/") || strings.HasPrefix(path, "cmd/"); lenient {
		ast.Inspect(file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
				name, _ := strconv.Unquote(text.Value) // the parser accepted it
				if slices.Contains([]string{"redis", "redlock", "mysql", "postgres", "etcd"}, name) && filepath.Base(filepath.Dir(path)) != name {
					found(name)
				}
			}
			return true
		})
		return nil
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if storeNames.MatchString(comment.Text) {
				found(comment.Text)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if storeNames.MatchString(n.Value) {
				found(n.Value)
			}
		case *ast.Ident:
			if storeNames.MatchString(n.Name) {
				found(n.Name)
			}
		}
		return true
	})
	return nil
}

func TestStoreNamesAreFound(t *testing.T) {
	for _, tt := range []struct {
		path, source string
		want         int
	}{
		{"bench/run.go", `package bench; var redisFloor = backend == "etcd" // as on redlock`, 3},
		{"bench/run.go", `package bench; import _ "github.com/redis/go-redis/v9"`, 1},
		{"bench/run.go", `package bench; var floor = backend == "one"`, 0},
		{"internal/servers/etcd/etcd.go", `package etcd; var a, b = "etcd", "mysql"`, 1},
		{"internal/servers/kind.go", `package servers; var mysqlKind = "redis-ping" // of redis`, 0},
		{"cmd/lockbench/run.go", `package main; var a, b = "lockbench run --backends redis", "redis"`, 1},
	} {
		count := 0
		if err := namedIn(tt.path, tt.source, func(string) { count++ }); err != nil || count != tt.want {
			t.Errorf("%s with %q: %d, %v", tt.path, tt.source, count, err)
		}
	}
}
