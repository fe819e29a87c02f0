package bench

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/internal/digest"
	"github.com/lockbench/lockbench/internal/results"
)

// machine describes what this runs on, without names.
func machine() results.Machine {
	return results.Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(),
		Cores: runtime.NumCPU(), Kernel: kernel(), Go: runtime.Version(),
	}
}

func cpuModel() string {
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	return output("sysctl", "-n", "machdep.cpu.brand_string")
}

// kernel asks the kernel itself: an image from scratch has no uname program.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// output is what a command prints, "" when it cannot be run: a description of
// the machine is worth having without it.
func output(name string, args ...string) string {
	b, err := exec.Command(name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// checksums are the SHA-256 of this program and of others, whose paths are given
// by name.
func checksums(others map[string]string) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	paths, sums := maps.Clone(others), map[string]string{}
	paths[filepath.Base(self)] = self
	for name, path := range paths {
		if sums[name], err = digest.File(path); err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// Version is the version of the module of lockbench, or the commit of a build from a
// checkout.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// moduleVersion is the version of a module that this binary was built with.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok || path == "" {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return m.Version
		}
	}
	return ""
}
