package fault

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
)

// clocks move the wall clock of a server: of several nodes, that of one of the
// three that the holder had reached.
var clocks = []Fault{
	{
		Name: "clock-forward", Does: "the server's clock jumps an hour ahead; of several nodes, that of one of the three that the holder had reached",
		Produces: []claim.Condition{claim.ClockForward},
		Needs:    []Capability{CapRival, CapServers, CapPaths, CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		Prepare: reachMajority, Inject: jump(time.Hour), Heal: reachAll,
	},
	{
		Name: "clock-forward-unfenced", Does: "as clock-forward, without tokens (fencing=none)",
		Produces: []claim.Condition{claim.ClockForward, claim.Unfenced},
		Needs:    []Capability{CapRival, CapServers, CapPaths, CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		OnlyFor: CapVotes, Config: map[string]string{"fencing": "none"}, Control: true,
		Prepare: reachMajority, Inject: jump(time.Hour), Heal: reachAll,
	},
	{
		Name: "clock-back", Does: "the server's clock jumps an hour back and stays there; of several nodes, that of one of the three that the holder had reached",
		Produces: []claim.Condition{claim.ClockBack},
		Needs:    []Capability{CapRival, CapServers, CapPaths, CapClock}, RivalAsksLate: true, ActsTTLs: 1.5,
		// Turning it forward again would be clock-forward.
		Prepare: reachMajority, Inject: jump(-time.Hour), Heal: reachAll,
	},
}

func jump(by time.Duration) func(context.Context, *Setup) error {
	return func(_ context.Context, s *Setup) error { return s.Clocks[0].Shift(by) }
}

//go:embed shim/clock.c
var shim []byte

// ClockLibrary compiles into dir the library that moves the wall clock of a
// process that preloads it, and returns its path. It needs a C compiler.
//
// Note: libfaketime kills one of Debian's servers at its start, and has no effect
// on Go programs. Neither has this on Go programs: they ask the kernel.
func ClockLibrary(ctx context.Context, dir string) (string, error) {
	source, library := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, shim, 0o600); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("fault: no C compiler to move clocks with: %w %s", err, out)
	}
	return library, nil
}

// Clock is the wall clock of a process that was started through [Clock.Wrap].
type Clock struct{ library, file string }

// NewClock makes a clock in dir that stands right. The library comes from
// [ClockLibrary], and the name tells clocks in one dir apart.
func NewClock(library, dir, name string) (*Clock, error) {
	c := &Clock{library: library, file: filepath.Join(dir, name)}
	return c, os.WriteFile(c.file, make([]byte, 8), 0o600)
}

// Wrap is the command to put in front of the process's own.
func (c *Clock) Wrap() []string {
	return []string{"env", "LD_PRELOAD=" + c.library, "LOCKBENCH_CLOCK=" + c.file}
}

// Shift makes the clock differ from the true time by d, from now on.
func (c *Clock) Shift(d time.Duration) error {
	f, err := os.OpenFile(c.file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(d.Microseconds())), 0)
	return errors.Join(err, f.Close())
}
