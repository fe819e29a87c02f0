package servers

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
)

// requireVar names an environment variable. In it, CI lists servers, separated by commas. If a
// listed server is missing, tests fail instead of being skipped. "all" means every server.
const requireVar = "LOCKBENCH_REQUIRE"

// test is the part of testing.TB that Missing and Keep need.
type test interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Missing ends a test whose server could not be started. Parameter cause is the error of the start.
// If cause wraps [ErrNotInstalled], Missing skips the test, unless the variable LOCKBENCH_REQUIRE
// names the server or is "all". In all other cases Missing fails the test.
func Missing(t test, server string, cause error) {
	t.Helper()
	if !errors.Is(cause, ErrNotInstalled) {
		t.Fatalf("start %s: %v", server, cause)
	}
	required := strings.Split(os.Getenv(requireVar), ",")
	if slices.Contains(required, "all") || slices.Contains(required, server) {
		t.Fatalf("%s=%s demands %s: %v", requireVar, os.Getenv(requireVar), server, cause)
	}
	t.Skipf("no %s: %v", server, cause)
}

// Keep makes the test close the server s when the test ends. Parameter err is the error of the
// start of s. If err is not nil, Keep calls [Missing] instead.
func Keep(t test, server string, s io.Closer, err error) {
	t.Helper()
	if err != nil {
		Missing(t, server, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close %s: %v", server, err)
		}
	})
}
