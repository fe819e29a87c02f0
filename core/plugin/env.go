package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// inherited are the variables of the host that a plugin gets: what a network
// client and the Go runtime need. Everything else of the host's environment,
// where secrets often are, stays here.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GORACE", "GOCOVERDIR",
	wire.EnvCPUProfile, wire.EnvTrace,
}

// environ is the environment of a plugin, without what go-plugin adds.
func environ(extra []string) []string {
	var env []string
	for _, key := range inherited {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return append(env, extra...)
}

// maxTempDir keeps socket paths below the 104 bytes that every system takes;
// go-plugin's own names add about 45 bytes to our directory's.
const maxTempDir = 36

// newSocketDir makes a directory that only this user can enter. Its name says
// whose it is, so that it can be swept when we die without removing it.
func newSocketDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > maxTempDir {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, fmt.Sprintf("%s%d-", wire.Prefix, os.Getpid()))
}

// sweepStale removes the socket directories of this user's dead hosts. The
// plugin removes its own when its host dies; this is for those that were
// killed together with their host.
func sweepStale() {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		dirs, err := filepath.Glob(filepath.Join(escapeGlob(parent), wire.Prefix+"[0-9]*-*"))
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			if staleDir(dir) {
				// Another host may be sweeping too.
				_ = os.RemoveAll(dir)
			}
		}
	}
}

func staleDir(dir string) bool {
	digits, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), wire.Prefix), "-")
	pid, err := strconv.Atoi(digits)
	if err != nil || pid <= 0 {
		return false
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
		return false
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
