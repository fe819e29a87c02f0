package redis

import (
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/servers"
)

// TestLeftKeys: what a lock leaves is seen, what a prefix needs is not.
func TestLeftKeys(t *testing.T) {
	s, err := Start(t.Context(), nil)
	servers.Keep(t, "redis", s, err)
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	set := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const prefix = "p*[x]:"
	set(c.Set(t.Context(), "another", "x", 0).Err())
	set(c.Set(t.Context(), prefix+"~s:{}", strings.Repeat("0", 64), 0).Err())
	set(c.ZAdd(t.Context(), prefix+"~b:{}", goredis.Z{Score: 1, Member: "owner"}).Err())
	left := func() []string {
		t.Helper()
		keys, err := LeftKeys(t.Context(), s.Addr(), prefix)
		set(err)
		return keys
	}
	if left := left(); len(left) != 0 {
		t.Errorf("housekeeping and foreign keys are taken for leftovers: %q", left)
	}
	set(c.Set(t.Context(), prefix+"lock", "x", 0).Err())
	set(c.Set(t.Context(), prefix+"~l:{lock}", "0\nowner 1 i\n", 0).Err())
	if left := left(); !slices.Equal(left, []string{prefix + "lock", prefix + "~l:{lock}"}) {
		t.Errorf("left: %q", left)
	}
	set(c.Append(t.Context(), prefix+"~s:{}", strings.Repeat("lock ", 20)).Err())
	if left := left(); len(left) != 2+1 {
		t.Errorf("a control string with something for each lock: %q", left)
	}
}
