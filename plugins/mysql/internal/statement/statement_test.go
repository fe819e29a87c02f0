package statement

import (
	sqldriver "database/sql/driver"
	"encoding/hex"
	"strings"
	"testing"
	"time"
)

// FuzzRow checks that Read accepts any content of a row, and that a Holder read
// from the row has time left.
func FuzzRow(f *testing.F) {
	f.Add([]byte("n"), "o-1", "label", int64(7), int64(1_000_000), int64(2_000_000), ",o-2.17,o-3.p3.1000000.6c.-.18", byte(0))
	f.Add([]byte{}, "", "", int64(-1), int64(-1), int64(1<<62), ",", byte(1))
	f.Add([]byte{0xff}, "o", "\x1b[31m", int64(0), int64(1<<62), int64(-5), "no comma.x", byte(2))
	f.Fuzz(func(t *testing.T, name []byte, owner, label string, token, left, ttl int64, queue string, as byte) {
		number := func(n int64) sqldriver.Value {
			switch as % 4 {
			case 1:
				return uint64(n)
			case 2:
				return []byte(label)
			case 3:
				return nil
			}
			return n
		}
		r := Read([]sqldriver.Value{name, number(token), nil, []byte(owner), number(token), label, number(left), number(ttl), []byte(queue), number(ttl)})
		h := r.Holder()
		if h.Held() && (h.Name != string(name) || h.Owner == "" || h.TTL <= 0 || h.TTL%time.Millisecond != 0 || h.Waiters < 0) {
			t.Errorf("%+v is held by %+v", r, h)
		}
	})
}

// FuzzBytes checks that a name becomes an SQL literal that cannot end early,
// and that two names never become the same literal. It also checks that Plain
// accepts no owner that needs encoding.
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
		if Plain(name) && strings.ContainsAny(name, "'\\\"`;, .%\x00") {
			t.Errorf("%q is taken for an owner", name)
		}
	})
}
