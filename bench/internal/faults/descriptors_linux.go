package faults

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const noDescriptorLimit = ""

// limitDescriptors limits the number of open file descriptors of the process pid to the number that
// is open now, plus spare. The restore function sets the hard limit, as a Go process does at its
// start, because the limit before may be that of another action, which ends earlier.
func limitDescriptors(pid, spare int) (restore func() error, err error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil, err
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		return nil, err
	}
	now := before
	now.Cur, before.Cur = uint64(len(open)+spare), before.Max
	restore = func() error { return errOf(unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil)) }
	return restore, errOf(unix.Prlimit(pid, unix.RLIMIT_NOFILE, &now, nil))
}

// errOf returns err, or nil if err means that the process has ended.
func errOf(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
