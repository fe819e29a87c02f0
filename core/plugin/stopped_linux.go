package plugin

import (
	"bytes"
	"fmt"
	"os"
)

// isStopped reports that a signal has stopped the process.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// "pid (command) state ...", where the command may contain anything.
	_, state, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return ok && len(state) > 0 && state[0] == 'T'
}
