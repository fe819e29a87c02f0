package lockbench_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fence = regexp.MustCompile("(?s)```(go|sh)\n(.*?)```")

// blocks returns the fenced blocks of one language in the README.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	if len(found) == 0 {
		t.Fatalf("README.md has no %s block", language)
	}
	return found
}

func TestReadmeProgramsCompile(t *testing.T) {
	for _, program := range blocks(t, "go") {
		dir := t.TempDir()
		file := filepath.Join(dir, "main.go")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), file).CombinedOutput()
		if err != nil {
			t.Errorf("a program in README.md does not compile: %v\n%s\n%s", err, out, program)
		}
	}
}

// TestReadmeCommands asks every command in the README for its help: a command
// or a flag that does not exist is an error there too.
func TestReadmeCommands(t *testing.T) {
	lockbench := filepath.Join(t.TempDir(), "lockbench")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", lockbench, "./cmd/lockbench").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks(t, "sh") {
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, " # ")
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			switch words[0] {
			case "make":
				if !regexp.MustCompile(`(?m)^` + words[1] + `:`).Match(makefile) {
					t.Errorf("README.md: %q: the Makefile has no such target", line)
				}
			case "bin/lockbench":
				out, err := exec.CommandContext(t.Context(), lockbench, append(words[1:], "--help")...).CombinedOutput()
				if err != nil {
					t.Errorf("README.md: %q: %v\n%s", line, err, out)
				}
			default:
				t.Errorf("README.md: %q: this test does not know how to check it", line)
			}
		}
	}
}
