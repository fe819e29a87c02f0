package scenario

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
)

// processorTime is how long all threads of the processes have run together. The
// error wraps errors.ErrUnsupported where that cannot be read.
func processorTime(pids ...int) (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, fmt.Errorf("processor time: %w", errors.ErrUnsupported)
	}
	var sum time.Duration
	for _, pid := range pids {
		s, ok := proc.Of(pid)
		if !ok {
			return 0, fmt.Errorf("processor time of process %d: it cannot be seen", pid)
		}
		sum += s.CPU
	}
	return sum, nil
}
