package scenario

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// residentBytes is how much memory of a process is resident.
func residentBytes(pid int) (uint64, error) {
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
