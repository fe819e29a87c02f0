package proc

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Resident is how many bytes of the memory of a process are resident.
//
// Note: /proc/PID/stat, which Of reads, has the figure too, but counts roughly
// on machines with many processors.
func Resident(pid int) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil { // no Linux
		kib, err := exec.Command("ps", "-o", "rss=", "-p", strconv.Itoa(pid)).Output()
		if err != nil {
			return 0, fmt.Errorf("memory of process %d: %w", pid, err)
		}
		return kibibytes(string(bytes.TrimSpace(kib)))
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return kibibytes(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")))
		}
	}
	return 0, fmt.Errorf("process %d has no memory: it has ended", pid)
}

func kibibytes(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n << 10, err
}
