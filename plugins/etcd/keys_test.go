package etcd

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzKeys checks that two names never share a key, and that a scan of one name
// never finds the other, in any namespace.
func FuzzKeys(f *testing.F) {
	f.Add("lockbench/", "a", "b", "o")
	f.Add("", "n", "nn", "h")
	f.Add("x", "a\x00", "a", "w-1")
	f.Fuzz(func(t *testing.T, prefix, a, b, owner string) {
		if a == "" || b == "" || !utf8.ValidString(prefix+a+b) || strings.Trim(owner, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Skip("core and parse refuse these")
		}
		s := newSpace(prefix)
		for _, key := range []string{s.free(a), s.waiting(a, owner)} {
			if name := s.nameOf(key); name != a {
				t.Fatalf("%q is read as of %q", key, name)
			}
			if a != b && strings.HasPrefix(key, s.entries(b)) {
				t.Fatalf("the scan of %q meets %q of %q", b, key, a)
			}
			if key == s.tombstone(b, owner) || key == s.generation {
				t.Fatalf("a key of %q is also another: %q", a, key)
			}
		}
	})
}
