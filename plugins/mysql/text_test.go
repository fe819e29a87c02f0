package mysql

import (
	"encoding/hex"
	"strings"
	"testing"
)

// FuzzBytes: a name stands in a statement as a literal that cannot end early,
// and two names never as the same one.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"a", "a ", "A", "'; DROP TABLE locks; --", "\x00", "é", "\\'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var statement text
		literal := statement.bytes(name).String()
		digits, ok := strings.CutPrefix(literal, "x'")
		if ok {
			digits, ok = strings.CutSuffix(digits, "'")
		}
		back, err := hex.DecodeString(digits)
		if !ok || err != nil || string(back) != name {
			t.Errorf("%q stands as %q", name, literal)
		}
	})
}
