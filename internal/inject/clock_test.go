package inject

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestClockLibrary checks that a path is refused if ld.so cannot load a library from it.
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
