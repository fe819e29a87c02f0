package env

import (
	"errors"
	"os"
	"slices"
	"strings"
)

// requireVar lists, by commas, the servers that tests must not do without;
// "all" names every one. CI sets it.
const requireVar = "LOCKBENCH_REQUIRE"

// test is the part of testing.TB that Missing needs.
type test interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Missing ends a test that cannot have its server: it skips the test on a
// developer's machine, and fails it where LOCKBENCH_REQUIRE names the server
// or says "all". cause is the error from starting it; any other than
// [ErrNotInstalled] fails the test everywhere.
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
