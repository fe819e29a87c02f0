package lockbench_test

import (
	"fmt"
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

// These patterns find the texts that a user may see. Such a text is a string literal that has
// several words and is no statement or script for a store.
var (
	unseen   = regexp.MustCompile(`^(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|SET|ALTER|DO|GRANT|REVOKE|KILL|SHOW|local|FLUSH) |^--|\bredis\.call\b`)
	unworded = regexp.MustCompile(`(?i)\b(nobody|somebody|everybody|whoever|tells that)\b`)
	several  = regexp.MustCompile(`[A-Za-z]{2,} [A-Za-z%]{2,}`)
)

// TestStringsOfUsers prints, with -v, all texts that users can see in errors, help, reports, logs
// and events. It fails if a text has a word such as "somebody", which does not say who is meant.
func TestStringsOfUsers(t *testing.T) {
	found := 0
	for _, dir := range []string{"core", "plugins", "internal", "bench", "cmd"} {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".pb.go") {
				return err
			}
			for _, s := range stringsOf(t, path) {
				found++
				t.Log(s)
				if word := unworded.FindString(s); word != "" {
					t.Errorf("%s: say which client, host or caller %q is", s, word)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 100 {
		t.Fatalf("found %d texts", found)
	}
}

func stringsOf(t *testing.T, path string) (found []string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var joined []ast.Node // parts of a concatenation, which are one text
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.BinaryExpr, *ast.BasicLit:
			if slices.Contains(joined, n) {
				return true
			}
			text := textOf(n.(ast.Expr), &joined)
			if several.MatchString(text) && !unseen.MatchString(strings.TrimSpace(text)) {
				found = append(found, fmt.Sprintf("%s: %q", files.Position(n.Pos()), text))
			}
		}
		return true
	})
	return found
}

// textOf returns the joined text of the string literals in the expression e. It appends the parts
// of e to the slice parts, so that the caller does not read them again.
func textOf(e ast.Expr, parts *[]ast.Node) string {
	*parts = append(*parts, e)
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			s, _ := strconv.Unquote(e.Value) // the parser accepted it
			return s
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return textOf(e.X, parts) + textOf(e.Y, parts)
		}
	}
	return ""
}
