package store

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// establishedAt counts the connections to a server on the loopback interface, as
// the kernel knows them.
func establishedAt(addr string) (int, error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return 0, fmt.Errorf("store: connections are counted on Linux only: %w", err)
	}
	count := 0
	for line := range strings.Lines(string(b)) {
		// number, local address, remote address, state (1: established), ...
		f := strings.Fields(line)
		if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", at.Port())) && f[3] == "01" {
			count++
		}
	}
	return count, nil
}
