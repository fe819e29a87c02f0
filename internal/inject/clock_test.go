package inject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClockLibrary checks that ClockLibrary refuses a path from which ld.so cannot load a library.
func TestClockLibrary(t *testing.T) {
	for _, name := range []string{"a b", "a:b"} {
		dir := filepath.Join(t.TempDir(), name)
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			_, err = ClockLibrary(t.Context(), dir)
		}
		if err == nil || !strings.Contains(err.Error(), "TMPDIR") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
