package scenario

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which Linux tells processor times (USER_HZ, proc(5)).
const tick = 10 * time.Millisecond

// processorTime is how long all threads of the processes have run together. The
// error wraps errors.ErrUnsupported where that cannot be read.
func processorTime(pids ...int) (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, fmt.Errorf("processor time: %w", errors.ErrUnsupported)
	}
	var sum time.Duration
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		ticks, err := ticksOf(string(b))
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(ticks) * tick
	}
	return sum, nil
}

// ticksOf adds user and system time, fields 14 and 15 of a stat file. The name
// in field 2 may hold spaces and parentheses.
func ticksOf(stat string) (uint64, error) {
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, errors.New("cannot read the stat file")
	}
	user, err := strconv.ParseUint(fields[11], 10, 64)
	system, errSystem := strconv.ParseUint(fields[12], 10, 64)
	return user + system, errors.Join(err, errSystem)
}
