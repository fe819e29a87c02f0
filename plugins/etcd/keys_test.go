package etcd

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzKeys: no two names share a key or are met by each other's scans, in any
// namespace.
func FuzzKeys(f *testing.F) {
	f.Add("lockbench/", "a", "b", "o")
	f.Add("", "n", "nn", "h")
	f.Add("x", "a\x00", "a", "w-1")
	f.Fuzz(func(t *testing.T, prefix, a, b, owner string) {
		if a == "" || b == "" || !utf8.ValidString(prefix+a+b) || strings.Trim(owner, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Skip("core and parse refuse these")
		}
		s := newSpace(prefix)
		for key, rest := range map[string]string{
			s.hold(a): kindHold, s.entry(a, owner): kindEntry + owner,
		} {
			if name, k, r := s.parse(key); name != a || k+r != rest {
				t.Fatalf("%q is read as %q, %q, %q", key, name, k, r)
			}
			if a != b && strings.HasPrefix(key, s.both(b)) {
				t.Fatalf("the scan of %q meets %q of %q", b, key, a)
			}
			if key == s.tombstone(b, owner) || key == s.generation {
				t.Fatalf("a key of %q is also another: %q", a, key)
			}
		}
	})
}
