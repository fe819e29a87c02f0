package examples_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// step matches a block of commands in docs/start.md, or the name of a file to write.
var step = regexp.MustCompile("(?s)```sh\n(.*?)```|goes into\\s+`([^`]+)`")

// TestStart runs the commands of docs/start.md, unchanged, in an empty directory
// against this checkout. Only the address of Redis differs from the page, because
// another server may use the usual port. The commands that fetch a release run in
// a separate directory, where this checkout is used in place of the release.
func TestStart(t *testing.T) {
	server, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", server, err)
	download(t)
	text := read(t, "../docs/start.md")
	files := map[string]string{
		"main.go":               strings.ReplaceAll(first(t, text, "go"), "localhost:6379", server.Addr()),
		"orders/orders_test.go": first(t, read(t, "../docs/testing.md"), "go"),
		"Dockerfile":            first(t, text, "dockerfile"),
	}
	dir := t.TempDir()
	want := 1
	// The build of the image compiles everything again, which takes minutes.
	image := long && docker(t)
	if image {
		want = 2
	}
	var told strings.Builder
	for _, m := range step.FindAllStringSubmatch(text, -1) {
		if name := m[2]; name != "" {
			if files[name] == "" {
				t.Fatalf("what goes into %s?", name)
			}
			write(t, filepath.Join(dir, name), files[name])
			delete(files, name)
			continue
		}
		if strings.Contains(m[1], "docker ") && !image {
			t.Log("the image is not built: that takes LOCKBENCH_LONG=1 and a docker daemon")
			continue
		}
		if strings.HasPrefix(m[1], "go get ") {
			released := t.TempDir()
			if err := os.CopyFS(released, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			shell(t, released, "go mod edit -replace github.com/lockbench/lockbench=$LOCKBENCH\n"+m[1]+"go list -deps . tool >/dev/null", &told)
			continue
		}
		dir = shell(t, dir, m[1], &told)
	}
	if len(files) > 0 {
		t.Errorf("the page does not say where these go: %v", files)
	}
	if got := strings.Count(told.String(), "refreshing under token "); got != want {
		t.Errorf("the host did its job %d times, not %d:\n%s", got, want, &told)
	}
	if !strings.Contains(told.String(), "lockplugin-redis, version ") {
		t.Errorf("the list of plugins has no version:\n%s", &told)
	}
}

// download fetches the modules that a program needs when it requires this module. Some of them are
// needed only by tests of dependencies.
func download(t *testing.T) {
	t.Helper()
	tidy := exec.CommandContext(t.Context(), "go", "-C", "..", "mod", "tidy", "-e", "-diff")
	if out, err := tidy.CombinedOutput(); err != nil {
		t.Logf("go mod tidy: %v\n%s", err, out)
	}
}

// shell runs commands, and returns the directory in which they end.
func shell(t *testing.T, dir, commands string, told *strings.Builder) string {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(t.TempDir(), "directory")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands+"\npwd >"+at)
	cmd.Dir = dir
	// The page uses LOCKBENCH. The other variables keep go from asking a proxy for our packages.
	cmd.Env = append(os.Environ(), "LOCKBENCH="+checkout, "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	told.Write(out)
	if err != nil {
		t.Fatalf("%s%v\n%s", commands, err, out)
	}
	return strings.TrimSpace(read(t, at))
}

// docker reports whether a docker daemon runs. If the daemon lacks the image that builder names,
// this function makes it from this machine's Go and shell, and removes it after the test.
func docker(t *testing.T) bool {
	t.Helper()
	ask := func(args ...string) error { return exec.CommandContext(t.Context(), "docker", args...).Run() }
	if ask("version") != nil {
		return false
	}
	if ask("image", "inspect", builder) == nil {
		return true
	}
	pack := exec.CommandContext(t.Context(), "sh", "-ec", `
		libraries=$(ldd /bin/sh | grep -o '/[^ ]*')
		tar --exclude='/tmp/*' -chf - /bin/sh $libraries $(go env GOROOT) /tmp 2>/dev/null |
		docker import --change "ENV PATH=$(go env GOROOT)/bin:/bin GOTOOLCHAIN=local GOFLAGS=-buildvcs=false HOME=/tmp" - `+builder)
	if out, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("docker", "image", "rm", "--force", builder).Run() })
	return true
}

// builder is the Go image in which the Dockerfile of docs/start.md builds the program.
const builder = "golang:1.26"

func first(t *testing.T, text, language string) string {
	t.Helper()
	_, after, found := strings.Cut(text, "```"+language+"\n")
	block, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatalf("the document has no block of %s", language)
	}
	return block
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
