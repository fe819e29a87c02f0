package plugin_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// refused opens a plugin, and checks that Open fails with an error that wraps want. Open must leave
// no process or other resource, and take at most 5 s longer than the start timeout.
func refused(t *testing.T, name string, opts plugin.Options, want error, texts ...string) error {
	t.Helper()
	before := census(t)
	if opts.StartTimeout == 0 {
		opts.StartTimeout = timeout
	}
	start := time.Now()
	b, err := plugin.Open(t.Context(), name, &opts)
	if err == nil {
		t.Cleanup(func() { b.Close(t.Context()) })
		t.Fatalf("%s was opened", name)
	}
	if took := time.Since(start); took > opts.StartTimeout+5*time.Second {
		t.Errorf("it took %v, start timeout is %v", took, opts.StartTimeout)
	}
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error does not say %q: %v", text, err)
		}
	}
	before.check(t)
	return err
}

// opened checks that the plugin opens, and then closes it. A plugin that stayed open would start
// goroutines later, and the next call of refused would report these goroutines as left behind.
func opened(t *testing.T, name string, opts plugin.Options) {
	t.Helper()
	t.Run("opened", func(t *testing.T) { plugintest.Open(t, name, &opts) })
}

func TestOpenRefusesBadBinaries(t *testing.T) {
	for _, c := range []struct {
		name  string
		opts  plugin.Options
		want  error
		texts []string
	}{
		{"crash", plugin.Options{}, plugin.ErrCrashed, []string{"exit status 3", "cannot find my libraries"}},
		{"killed", plugin.Options{}, plugin.ErrCrashed, []string{"signal: killed"}},
		{"words", plugin.Options{}, plugin.ErrCrashed, []string{"exit status 9", "319 word word"}},
		{"hang", plugin.Options{StartTimeout: 500 * time.Millisecond}, plugin.ErrHung, []string{"500ms"}},
		{"version", plugin.Options{}, plugin.ErrVersion, []string{"version 7", "versions [1 2]"}},
		{"core", plugin.Options{}, plugin.ErrVersion, []string{"handshake", "2"}},
		{"garbage", plugin.Options{}, plugin.ErrStdout, []string{"Hello, world!"}},
		{"flood", plugin.Options{}, plugin.ErrStdout, []string{"xxx..."}},
		{"netrpc", plugin.Options{}, plugin.ErrNotPlugin, []string{"gRPC"}},
		{"nomtls", plugin.Options{}, plugin.ErrNoMTLS, []string{"option NoMTLS"}},
		{"mute", plugin.Options{NoMTLS: true, StartTimeout: 500 * time.Millisecond}, plugin.ErrHung, nil},
		{"gone", plugin.Options{NoMTLS: true}, plugin.ErrCrashed, []string{"exit status 6"}},
		{"unasked", plugin.Options{NoMTLS: true}, plugin.ErrNotPlugin, []string{"option NoMTLS"}},
		{"cert", plugin.Options{}, plugin.ErrNotPlugin, []string{"cert"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Path = link(t, c.name)
			if err := refused(t, c.name, c.opts, c.want, c.texts...); len(err.Error()) > 4<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
		})
	}
}

func TestOpenRefusesOptionsOutOfRange(t *testing.T) {
	_, err := plugin.Open(t.Context(), "redis", &plugin.Options{StartTimeout: -time.Second})
	if !errors.Is(err, driver.ErrConfig) || !strings.Contains(err.Error(), "-1s is less than 0s") {
		t.Error(err)
	}
}

func TestOpenRefusesWhatIsNoPlugin(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name, path string
		want       error
		text       string
	}{
		{"program", "/bin/true", plugin.ErrNotPlugin, "without a handshake"},
		{"text", write("text", "just a text\n", 0o755), plugin.ErrNotPlugin, "exec format error"},
		{"script", write("script", "#!/bin/sh\nexit 7\n", 0o755), plugin.ErrCrashed, "exit status 7"},
		{"mode", write("mode", "#!/bin/sh\n", 0o644), plugin.ErrNotExecutable, "-rw-r--r--"},
		{"directory", dir, plugin.ErrNotExecutable, "not a regular file"},
		{"missing", filepath.Join(dir, "nothing"), plugin.ErrNotFound, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := refused(t, "redis", plugin.Options{Path: c.path}, c.want, c.text, c.path)
			var open *plugin.OpenError
			if !errors.As(err, &open) || open.Path != c.path || open.Name != "redis" {
				t.Errorf("got %#v, want an OpenError for redis at %s", err, c.path)
			}
		})
	}
}

func TestOpenFindsByName(t *testing.T) {
	dir := filepath.Dir(plugintest.Build(t, memoryMain))
	for _, name := range []string{"", "../memory", "sub/memory", "Memory", "memory.exe", `a\b`} {
		refused(t, name, plugin.Options{Dirs: []string{dir}}, plugin.ErrBadName)
	}
	refused(t, "memroy", plugin.Options{Dirs: []string{dir}}, plugin.ErrNotFound, "did you mean memory?")
	refused(t, "nothing", plugin.Options{}, plugin.ErrNotFound,
		"go get -tool github.com/lockbench/lockbench/plugins/nothing/lockplugin-nothing && go build -o bin/ tool")
	// The plugin is only in ./bin, where Open does not look, so the error must give two remedies.
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("bin", 0o700), os.WriteFile("bin/lockplugin-own", nil, 0o700)); err != nil {
		t.Fatal(err)
	}
	refused(t, "own", plugin.Options{}, plugin.ErrNotFound, `PATH="$PWD/bin:$PATH" go run .`, `Dirs: []string{"bin"}`)
	found := plugin.Discover([]string{dir})
	if len(found) == 0 || found[0] != (plugin.Found{Name: "memory", Path: filepath.Join(dir, "lockplugin-memory")}) {
		t.Errorf("Discover found %v", found)
	}
	plugintest.Open(t, "memory", &plugin.Options{Dirs: []string{t.TempDir(), dir}}) // last, because refused counts goroutines
}

func TestOpenChecksTheChecksum(t *testing.T) {
	path := plugintest.Build(t, memoryMain)
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sums := func(text string) plugin.Options {
		file := filepath.Join(t.TempDir(), "SHA256SUMS")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return plugin.Options{Path: path, Checksums: file}
	}
	right, wrong := sha256.Sum256(binary), sha256.Sum256(nil)
	other := fmt.Sprintf("%x  lockplugin-other\n", wrong)
	for _, form := range []string{"%x  lockplugin-memory\n", "%x *bin/lockplugin-memory\n"} {
		opts := sums(other + fmt.Sprintf(form, right))
		opened(t, "memory", opts)
	}
	refused(t, "memory", sums(fmt.Sprintf("%x  lockplugin-memory\n", wrong)), plugin.ErrChecksum, fmt.Sprintf("%x", right), fmt.Sprintf("%x", wrong))
	refused(t, "memory", sums(other), plugin.ErrNoChecksum, "no line for lockplugin-memory")
	refused(t, "memory", sums("abc  lockplugin-memory\n"), plugin.ErrNoChecksum, "not a SHA-256 sum")
	refused(t, "memory", plugin.Options{Path: path, Checksums: path + ".none"}, plugin.ErrNoChecksum)
}

const secret = `hunter2-"quoted"`

func TestOpenRefusesBadConfig(t *testing.T) {
	path := link(t, "far")
	with := func(key, value string) plugin.Options {
		return plugin.Options{Path: path, StartTimeout: 2 * time.Second, Config: driver.Config{
			"address": "/nowhere", "password": secret, key: value,
		}}
	}
	for _, c := range []struct {
		opts  plugin.Options
		want  error
		texts []string
	}{
		{with("addres", "x"), driver.ErrConfig, []string{"did you mean address?"}},
		{with("password", "caf\xe9"), driver.ErrConfig, []string{`"password" or its value is not UTF-8`}},
		{with("address", ""), driver.ErrConfig, []string{`needs "address"`}},
		{with("fail", "error"), driver.ErrConfig, []string{"cannot work", "[secret]"}},
		{with("fail", "panic"), plugin.ErrCrashed, []string{"panic: cannot work", "[secret]"}},
		{with("fail", "hang"), plugin.ErrHung, nil},
	} {
		err := refused(t, "far", c.opts, c.want, c.texts...)
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), ".go:") {
			t.Errorf("the error shows the secret or a stack: %v", err)
		}
	}
}

func TestDescribe(t *testing.T) {
	d, err := plugin.Describe(t.Context(), link(t, "far"))
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "far" || len(d.Keys) != 3 || !d.Keys[1].Secret || d.Properties.Scope != driver.ScopeShared {
		t.Errorf("got %+v", d)
	}
	for _, bad := range []string{"crash", "version"} {
		if d, err := plugin.Describe(t.Context(), link(t, bad)); err == nil {
			t.Errorf("%s is described as %+v", bad, d)
		}
	}
}

// A plugin of another backend would take locks in a store where no other host looks for them. So
// Open checks the backend name that the plugin reports, not the name of the file.
func TestOpenComparesTheName(t *testing.T) {
	memory := plugintest.Build(t, memoryMain)
	misnamed := filepath.Join(t.TempDir(), "lockplugin-redis")
	if err := os.Symlink(memory, misnamed); err != nil {
		t.Fatal(err)
	}
	for _, v := range []int{1, 2} {
		for _, path := range []string{memory, misnamed} {
			err := refused(t, "redis", plugin.Options{Path: path, Protocol: v}, plugin.ErrBackend, `"redis"`, `"memory"`, path)
			var open *plugin.OpenError
			if !errors.As(err, &open) || open.Name != "redis" || open.Path != path {
				t.Errorf("got %#v", err)
			}
		}
		opened(t, "memory", plugin.Options{Path: misnamed, Protocol: v})
	}
}
