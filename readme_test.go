package lockbench_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	fence  = regexp.MustCompile("(?s)```(go|sh)\n(.*?)```")
	inline = regexp.MustCompile("`((?:lockbench|lockplugin-[a-z]+) [^`]+)`")
)

// aroundPart turns a part of a program, such as the one in README.md, into a whole program.
const aroundPart = `package main

import (
	"context"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/plugin"
)

var (
	ctx     context.Context
	client  *core.Client
	refresh func(context.Context, uint64) error
	_       = plugin.Open
)

func main() {
	_ = func() error {
		%s
		return nil
	}
}
`

func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"README.md", "CONTRIBUTING.md", "docs/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out[path] = string(text)
		}
	}
	if len(out) < 2 {
		t.Fatalf("found %d documents", len(out))
	}
	return out
}

func blocks(text, language string) (found []string) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

// commands returns the command lines that a document has in its sentences and in its sh blocks. If
// a line of an sh block calls several programs, the result has one command line for each program.
func commands(text string) (found []string) {
	for _, block := range blocks(text, "sh") {
		block = strings.ReplaceAll(block, "\\\n", " ")
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(line, " # ")
			if strings.HasPrefix(line, "#") {
				continue
			}
			for part := range strings.SplitSeq(strings.ReplaceAll(line, "|", "&&"), "&&") {
				found = append(found, strings.TrimSpace(part))
			}
		}
	}
	for _, m := range inline.FindAllStringSubmatch(text, -1) {
		found = append(found, strings.Join(strings.Fields(m[1]), " "))
	}
	return slices.DeleteFunc(found, func(s string) bool { return s == "" })
}

// noCgo is a setting of "make build". With this setting, go build can reuse what make compiled.
const noCgo = "CGO_ENABLED=0"

func TestDocumentedProgramsCompile(t *testing.T) {
	programs := 0
	for path, text := range documents(t) {
		for _, program := range blocks(text, "go") {
			if path == "README.md" {
				program = fmt.Sprintf(aroundPart, program)
			}
			if !strings.HasPrefix(program, "package ") {
				continue // the block is only a part of a program
			}
			programs++
			dir := t.TempDir()
			file := filepath.Join(dir, "main.go")
			args := []string{"vet", "-printf", file} // vet compiles and does not link
			if strings.Contains(program, `"testing"`) {
				file = filepath.Join(dir, "document_test.go")
				args = []string{"test", file}
			}
			if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
				t.Fatal(err)
			}
			compile := exec.CommandContext(t.Context(), "go", args...)
			compile.Env = append(os.Environ(), noCgo)
			out, err := compile.CombinedOutput()
			if err != nil {
				t.Errorf("a program in %s does not compile, or its test fails: %v\n%s\n%s", path, err, out, program)
			}
		}
	}
	if programs == 0 {
		t.Error("no document has a program")
	}
}

// TestDocumentedCommands checks every command in the documents. It runs each command of lockbench
// with --help. This only prints the help, but fails if the command or a flag is unknown.
func TestDocumentedCommands(t *testing.T) {
	lockbench := filepath.Join(t.TempDir(), "lockbench")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", lockbench, "./cmd/lockbench")
	build.Env = append(os.Environ(), noCgo)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	c := checker{t: t, lockbench: lockbench, makefile: string(makefile)}
	for path, text := range documents(t) {
		for _, command := range commands(text) {
			if why := c.check(command); why != "" {
				t.Errorf("%s: %q: %s", path, command, why)
			}
		}
	}
}

// checker checks command lines. Its check method returns "" for a correct line, or an error text.
type checker struct {
	t                   *testing.T
	lockbench, makefile string
}

// shellWord matches one word of a command line. The word may contain quoted spaces.
var shellWord = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s])+`)

var assignment = regexp.MustCompile(`^[A-Z_]+=`)

// foreign lists programs that the checker does not know. If their arguments are paths in a
// directory of the repository, the checker only checks that these paths exist.
var foreign = []string{"cd", "cp", "mkdir", "export", "curl", "app", "docker", "kubectl", "systemctl", "sudo", "git", "benchstat"}

func (c checker) check(command string) string {
	words := shellWord.FindAllString(command, -1)
	for i, word := range words {
		words[i] = strings.NewReplacer("'", "", `"`, "").Replace(word)
	}
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) == 0 {
		return ""
	}
	switch program := filepath.Base(words[0]); {
	case program == "make":
		return c.targets(words[1:])
	case program == "lockbench":
		return c.help(words[1:])
	case strings.HasPrefix(program, "lockplugin-"):
		return c.plugin(strings.TrimPrefix(program, "lockplugin-"), words[1:])
	case program == "go":
		return c.output("go", "help", words[min(1, len(words)-1)])
	case strings.HasPrefix(words[0], "scripts/"), slices.Contains(foreign, program):
		return paths(words)
	}
	return "this test does not know how to check it"
}

func (c checker) targets(words []string) string {
	for _, w := range words {
		if !assignment.MatchString(w) && !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(w)+`:`).MatchString(c.makefile) {
			return "the Makefile has no target " + w
		}
	}
	return ""
}

// The help method adds --help to a command line of lockbench and runs it. Before that, it removes
// the words from "--" or ">" on, which are not for lockbench.
func (c checker) help(words []string) string {
	for i, w := range words {
		if w == "--" || strings.HasPrefix(w, ">") {
			words = words[:i]
			break
		}
	}
	return c.output(c.lockbench, append(slices.Clone(words), "--help")...)
}

// The plugin method checks that the sources of the named plugin define the command words[0]. It
// accepts the commands describe and help without a search, because every plugin has them.
func (c checker) plugin(name string, words []string) string {
	if len(words) == 0 || words[0] == "describe" || words[0] == "help" {
		return ""
	}
	files, err := filepath.Glob(filepath.Join("plugins", name, "*.go"))
	if err != nil || len(files) == 0 {
		return "there is no such plugin"
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && regexp.MustCompile(`Name:\s+"`+regexp.QuoteMeta(words[0])+`"`).Match(text) {
			return ""
		}
	}
	return "the plugin has no command " + words[0]
}

func (c checker) output(program string, args ...string) string {
	out, err := exec.CommandContext(c.t.Context(), program, args...).CombinedOutput()
	if err != nil {
		return err.Error() + "\n" + string(out)
	}
	return ""
}

// paths returns an error text if one of the words is a path below a directory of the repository,
// but no file has this path.
func paths(words []string) string {
	for _, w := range words {
		top, _, below := strings.Cut(strings.TrimPrefix(w, "./"), "/")
		if _, err := os.Stat(top); !below || err != nil || top == "bin" || top == "results" {
			continue
		}
		if _, err := os.Stat(w); err != nil {
			return err.Error()
		}
	}
	return ""
}

func TestCommandCheckerFinds(t *testing.T) {
	c := checker{t: t, lockbench: "false", makefile: "bench: build\n"}
	for command, good := range map[string]bool{
		"make bench OUT=x":               true,
		"make bnech":                     false,
		"OUT=x make bench":               true,
		"go build ./...":                 true,
		"go bulid":                       false,
		"lockplugin-redlock init":        true,
		"lockplugin-redlock int":         false,
		"./lockplugin-mine describe":     true,
		"scripts/servers":                true,
		"scripts/sevrers":                false,
		"docker compose -f compose.yaml": true,
		"cp core/nothing.go .":           false,
		"frobnicate":                     false,
		"bin/lockbench run":              false, // lockbench is the program "false" in this test
	} {
		if why := c.check(command); (why == "") != good {
			t.Errorf("%s: %q", command, why)
		}
	}
	text := "```sh\nmake a && \\\n  lockbench b | cat # note\n```\nand `lockbench c\nd`, not `lockbench`."
	want := []string{"make a", "lockbench b", "cat", "lockbench c d"}
	if got := commands(text); !slices.Equal(got, want) {
		t.Errorf("commands %q, want %q", got, want)
	}
}
