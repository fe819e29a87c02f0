package bench

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
)

func machine() results.Machine {
	return results.Machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: cpuModel(),
		Cores: runtime.NumCPU(), Kernel: kernel(), Go: runtime.Version(), Files: filesystem(os.TempDir()),
	}
}

// filesystem returns the type of the file system of the directory dir, as Linux names the type. On
// other systems filesystem returns "".
func filesystem(dir string) (kind string) {
	longest := ""
	for line := range strings.Lines(readText("/proc/self/mounts")) {
		f := strings.Fields(line)
		if len(f) > 2 && len(f[1]) >= len(longest) && strings.HasPrefix(dir+"/", strings.TrimSuffix(f[1], "/")+"/") {
			longest, kind = f[1], f[2]
		}
	}
	return kind
}

func cpuModel() string {
	for line := range strings.Lines(readText("/proc/cpuinfo")) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	b, _ := exec.Command("sysctl", "-n", "machdep.cpu.brand_string").Output() // after an error the model is empty
	return strings.TrimSpace(string(b))
}

// kernel makes a system call, because a container image may not have the program uname.
func kernel() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
}

// checksums returns the SHA-256 of this binary and of the binaries at the paths in others.
func checksums(others map[string]string) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	paths, sums := maps.Clone(others), map[string]string{}
	paths[filepath.Base(self)] = self
	for name, path := range paths {
		program, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		sums[name] = fmt.Sprintf("%x", sha256.Sum256(program))
	}
	return sums, nil
}

// Version is the version of module lockbench. In a build from a checkout, it is the commit.
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

// moduleVersion returns the version of the module at path that is part of this binary.
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

type gauged struct {
	at          time.Time
	wall        time.Time     // by the wall clock, which may be set
	busy        time.Duration // of all CPUs, without stolen time
	all, stolen time.Duration
	own         time.Duration // run time of this process and its descendants
	throttled   time.Duration // time for which the control group was throttled
}

// gauge reads counters. It takes some milliseconds. A counter that it cannot read stays 0.
func gauge() gauged {
	g := gauged{at: time.Now(), own: ownTime()}
	g.wall = g.at.Round(0)
	g.cpus(readText("/proc/stat"))
	for _, path := range []string{"/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"} {
		// Version 2 of control groups counts microseconds, and version 1 counts nanoseconds.
		g.throttled += time.Duration(valueOf(readText(path), "throttled_usec"))*time.Microsecond + time.Duration(valueOf(readText(path), "throttled_time"))
	}
	return g
}

// The first line of /proc/stat has the times of all CPUs in the states user, nice, system, idle,
// iowait, irq, softirq, steal. See proc_stat(5). User and nice include the fields after steal.
func (g *gauged) cpus(text string) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 {
		return
	}
	var spent [8]time.Duration
	for i := range spent {
		spent[i] = time.Duration(number(fields[i+1])) * proc.Tick
		g.all += spent[i]
	}
	g.stolen = spent[7]
	g.busy = g.all - spent[3] - spent[4] - g.stolen
}

func ownTime() (sum time.Duration) {
	for _, pid := range proc.Family(os.Getpid()) {
		s, _ := proc.Of(pid) // zero for a process that has just ended
		sum += s.CPU + s.Reaped
	}
	return sum
}

// watch begins to measure how busy the machine is. The returned function ends the measurement.
func watch() func(*results.Manifest) {
	before := gauge()
	return func(m *results.Manifest) { m.MachineLoad = before.until(gauge()) }
}

func (g gauged) until(end gauged) *results.MachineLoad {
	took := end.at.Sub(g.at)
	// end.own may be too small, because it lacks the time of some processes that have ended.
	others := max(0, (end.busy-g.busy)-max(0, end.own-g.own))
	return &results.MachineLoad{
		OtherCPUs: ratio(others, took), Steal: ratio(end.stolen-g.stolen, end.all-g.all),
		Throttled: (end.throttled - g.throttled).Seconds(),
		ClockStep: (end.wall.Sub(g.wall) - took).Seconds(), Elapsed: took.Seconds(),
	}
}

func ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func readText(path string) string {
	b, _ := os.ReadFile(path) // a file that cannot be read counts as empty
	return string(b)
}

func valueOf(text, key string) int64 {
	for line := range strings.Lines(text) {
		if name, value, _ := strings.Cut(line, " "); name == key {
			return number(value)
		}
	}
	return 0
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	return n
}
