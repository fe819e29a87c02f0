package redis

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The backend works even if Go allows only FIPS 140 algorithms.
func TestFIPSOnly(t *testing.T) {
	if !fips140.Enforced() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFIPSOnly$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestFIPSOnly") {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	b := connect(t, at(start(t, nil)))
	must(t, b.Check(t.Context()))
	must(t, b.Release(t.Context(), acquire(t, b, lease("a", "o"))))
}
