package redisnode

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

func keysOf(t testing.TB, prefix string, cluster bool) Keys {
	t.Helper()
	k, err := NewKeys(prefix, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLockKeys(t *testing.T) {
	k := keysOf(t, "p:", false)
	for name, key := range map[string]string{
		"jobs":      "p:jobs",
		"a b/c\x00": "p:a b/c\x00",
		"100%":      "p:100%",
		"%7B":       "p:%7B",
		"~":         "p:~n:~",
		"{user}":    "p:~n:%7Buser%7D",
		"{%7B":      "p:~n:%7B%257B",
		"~n:x":      "p:~n:~n:x",
	} {
		if got := k.Lock(name); got != key {
			t.Errorf("%q has key %q, want %q", name, got, key)
		}
	}
	for _, key := range []string{"x", "p:", "q:jobs", "p:~n:jobs", "p:~n:{", "p:~s:{}", "p:~q:{p:jobs}", "p:a{b}"} {
		if name, ok := k.Name(key); ok {
			t.Errorf("key %q is the lock %q", key, name)
		}
	}
	if _, err := NewKeys("a{b}", false); !errors.Is(err, driver.ErrConfig) {
		t.Errorf("a prefix with braces: %v", err)
	}
	if got := keysOf(t, `a*[b]\?`, false).pattern(); got != `a\*\[b\]\\\?*` {
		t.Errorf("pattern %s", got)
	}
}

// hashTag returns the part of a key that a Cluster hashes, as its specification says.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if !ok {
		return key
	}
	if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
		return tag
	}
	return key
}

func FuzzKeys(f *testing.F) {
	for _, s := range []string{"a", "~", "{}", "}{", "{a}b", "%7B", "~n:%7B", "~s:{}", "é\x00", "a{b"} {
		f.Add(s, "~n:"+s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			t.Skip("core refuses empty names")
		}
		for _, cluster := range []bool{false, true} {
			k := keysOf(t, "", cluster)
			key := k.Lock(a)
			if name, ok := k.Name(key); !ok || name != a {
				t.Fatalf("%q has key %q, which is %q", a, key, name)
			}
			if a != b && key == k.Lock(b) {
				t.Fatalf("%q and %q share the key %q", a, b, key)
			}
			queue := k.side() + "q:{" + key + "}"
			for _, side := range []string{k.control(key), k.tombstones(key), queue} {
				if side == k.Lock(b) {
					t.Fatalf("the lock %q is the side key %q", b, side)
				}
				if cluster && slot(hashTag(side)) != slot(hashTag(key)) {
					t.Fatalf("side key %q is not in the slot of %q", side, key)
				}
			}
		}
	})
}

func TestSlot(t *testing.T) {
	// The Redis Cluster specification says that CRC16("123456789") is 0x31C3.
	if got := slot("123456789"); got != 0x31c3%slots {
		t.Errorf("slot %#x", got)
	}
	for s, tag := range slotTags() {
		if tag == "" || slot(tag) != uint16(s) {
			t.Fatalf("tag %q of slot %d has slot %d", tag, s, slot(tag))
		}
	}
}
