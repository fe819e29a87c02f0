package plugin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

const (
	// maxTempDir is the longest accepted path, in bytes, of the directory that contains a socket
	// directory. The names of the socket directory and the socket add about 45 bytes. Every system
	// accepts a socket path of 104 bytes.
	maxTempDir = 36
	// An unlocked directory younger than sweepAfter stays, because its host may be about to lock it.
	sweepAfter = time.Minute
)

// socketDir is a directory that only the user of this process can enter. The host that created it
// holds a flock on it until the host ends. Later hosts remove a directory without a flock.
type socketDir struct {
	path  string
	claim *os.File // the open directory; its lock ends with remove, or when this host dies
}

func newSocketDir() (*socketDir, error) {
	parent := os.TempDir()
	if len(parent) > maxTempDir {
		parent = "/tmp"
	}
	path, err := os.MkdirTemp(parent, fmt.Sprintf("%s%d-", wire.Prefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	claim, err := os.Open(path)
	if err == nil {
		err = syscall.Flock(int(claim.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return &socketDir{path: path, claim: claim}, nil
}

// remove deletes the directory. If that fails, a later Open may delete it (see sweepStale).
func (d *socketDir) remove() {
	_ = os.RemoveAll(d.path)
	_ = d.claim.Close()
}

// sweepStale deletes the directories of dead hosts. Usually the plugin of a dead host deletes the
// host's directory. So a directory is left only if the plugin was killed too.
func sweepStale() {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		entries, _ := os.ReadDir(parent) // after an error, there may be entries all the same
		for _, e := range entries {
			if dir := filepath.Join(parent, e.Name()); strings.HasPrefix(e.Name(), wire.Prefix) && staleDir(dir) {
				// Ignore the error, because another host may be removing the same directory.
				_ = os.RemoveAll(dir)
			}
		}
	}
}

// staleDir reports whether dir is a socket directory of this user that has not
// changed for sweepAfter, and whose lock is free because its host is dead.
//
// Note: the process id in the directory's name does not show whether its host lives. Hosts in
// several PID namespaces may share the parent directory. And in a restarted container, the new host
// often has the process id of the killed host.
func staleDir(dir string) bool {
	name, ours := strings.CutPrefix(filepath.Base(dir), wire.Prefix)
	pid, _, made := strings.Cut(name, "-")
	if _, err := strconv.ParseUint(pid, 10, 31); err != nil || !ours || !made {
		return false
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || time.Since(info.ModTime()) < sweepAfter {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return false
	}
	return !claimed(dir)
}

func claimed(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}
