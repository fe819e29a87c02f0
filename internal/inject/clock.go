package inject

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

//go:embed shim/clock.c
var shim []byte

// ClockLibrary compiles a library into dir, with the C compiler cc, and returns its path. In a
// process that preloads the library, the C library's functions return the time of its [Clock].
//
// Note: libfaketime cannot replace this library, because it makes one of Debian's servers die at
// its start. No such library affects a Go program, because Go gets its time without the C library.
func ClockLibrary(ctx context.Context, dir string) (string, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if strings.ContainsAny(library, " :") { // ld.so would then only print an error
		return "", fmt.Errorf("inject: LD_PRELOAD cannot name %q, to move clocks with: choose a TMPDIR without spaces and colons", library)
	}
	if err := os.WriteFile(source, shim, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("inject: no C compiler to move clocks with: %w %s", err, out)
	}
	return library, nil
}

// Clock is the wall clock of a process whose command begins with the words of [Clock.Wrap].
type Clock struct{ library, file string }

// NewClock makes a clock that at first shows the true time. Its offset is in the file
// dir/name. The parameter library is the path that [ClockLibrary] returned.
func NewClock(library, dir, name string) (*Clock, error) {
	c := &Clock{library: library, file: filepath.Join(dir, name)}
	return c, os.WriteFile(c.file, make([]byte, 8), 0o600)
}

// Wrap returns the words with which a command must begin so that its process uses this clock.
func (c *Clock) Wrap() []string {
	return []string{"env", "LD_PRELOAD=" + c.library, "LOCKBENCH_CLOCK=" + c.file}
}

// Shift makes the clock show the true time plus d.
func (c *Clock) Shift(d time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0)
	return errors.Join(err, f.Close())
}
