package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

// If the client has no right to write the token of an acquire, the acquire leaves no lock behind.
func TestDeniedHalfway(t *testing.T) {
	s := start(t, nil)
	c := plain(t, s)
	must(t, c.Do(t.Context(), "acl", "setuser", "app", "on", ">s3cret", "~*", "&*", "+@all").Err())
	b := connect(t, Options{Address: []string{"redis://app:s3cret@" + s.Addr()}})
	must(t, b.Check(t.Context()))
	must(t, c.Do(t.Context(), "acl", "setuser", "app", "-setrange").Err())
	if _, err := b.TryAcquire(t.Context(), lease("a", "o1")); !errors.Is(err, driver.ErrDenied) {
		t.Errorf("acquire without SETRANGE: %v", err)
	}
	if ttl := c.PTTL(t.Context(), "a").Val(); ttl > 0 {
		t.Errorf("the refused lock stands for another %v", ttl)
	}
}

// A server at maxmemory refuses acquires, but the renewals and withdrawals in
// the same batch must succeed.
func TestOutOfMemory(t *testing.T) {
	s := start(t, nil)
	b, c := connect(t, at(s)), plain(t, s)
	var ops []driver.Op
	for i := range 40 {
		ops = append(ops, driver.Op{Kind: driver.OpRenew, Request: acquire(t, b, lease(fmt.Sprint("held", i), "o"))})
	}
	withdrawn := driver.Op{Kind: driver.OpWithdraw, Request: acquire(t, b, lease("withdrawn", "o"))}
	ops = append([]driver.Op{{Kind: driver.OpAcquire, Request: lease("new", "o")}}, append(ops, withdrawn)...)
	must(t, c.ConfigSet(t.Context(), "maxmemory", "1mb").Err())
	for i, res := range b.Batch(t.Context(), ops) {
		switch {
		case i == 0 && (!errors.Is(res.Err, driver.ErrUnavailable) || !strings.Contains(res.Err.Error(), "maxmemory")):
			t.Errorf("acquire at maxmemory: %v", res.Err)
		case i > 0 && res.Err != nil:
			t.Errorf("operation %d on %q at maxmemory: %v", ops[i].Kind, ops[i].Name, res.Err)
		}
	}
	if n := c.Exists(t.Context(), "new", "withdrawn").Val(); n != 0 {
		t.Errorf("%d locks are left that nobody holds", n)
	}
}

func TestCheckProvesRights(t *testing.T) {
	s := start(t, nil)
	c := plain(t, s)
	for _, missing := range []string{
		"-eval", "-evalsha", "-set", "-get", "-getrange", "-pttl", "-pexpire", "-del", "-exists", "-type", "-time", "-info",
		"-mget", "-setrange", "-zadd", "-zscore", "-zremrangebyscore",
		"-publish", "-subscribe", "resetchannels &lock:other*", "resetkeys ~lock:[a-z]*",
		"-eval", "-wait", // both on a server that already has the scripts
	} {
		must(t, c.Do(t.Context(), "acl", "deluser", "app").Err())
		rules := append([]any{"acl", "setuser", "app", "on", ">s3cret", "~lock:*", "&lock:*", "+@all"}, words(missing)...)
		must(t, c.Do(t.Context(), rules...).Err())
		b := connect(t, Options{Address: []string{"redis://app:s3cret@" + s.Addr()}, Prefix: "lock:", WaitReplicas: strings.Count(missing, "-wait")})
		if err := b.Check(t.Context()); !errors.Is(err, driver.ErrDenied) {
			t.Errorf("check with %s: %v", missing, err)
		}
	}
}

func words(s string) []any {
	var all []any
	for _, w := range strings.Fields(s) {
		all = append(all, w)
	}
	return all
}
