package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/internal/servers"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

func TestGuardRefusesZeroAndLower(t *testing.T) {
	var g fence.Guard
	for _, c := range []struct {
		token uint64
		want  error
	}{{5, nil}, {5, nil}, {4, fence.ErrStale}, {0, fence.ErrNoToken}, {1 << 63, nil}, {6, fence.ErrStale}} {
		if err := g.Raise("x", c.token); !errors.Is(err, c.want) {
			t.Errorf("token %d: %v, want %v", c.token, err, c.want)
		}
	}
	if err := g.Raise("y", 1); err != nil {
		t.Errorf("another name: %v", err)
	}
}

func TestFileKeepsTheHighest(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	var wg sync.WaitGroup
	for token := uint64(1); token <= 50; token++ {
		wg.Go(func() {
			err := f.Write(token, []byte(strconv.FormatUint(token, 10)))
			if err != nil && !errors.Is(err, fence.ErrStale) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if text, err := os.ReadFile(f.Path); err != nil || string(text) != "50" {
		t.Errorf("the file holds %q (%v), want 50", text, err)
	}
}

func TestFileRefusesACutGuard(t *testing.T) {
	f := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	if err := os.WriteFile(f.Path+".token", []byte("12"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Write(13, nil); err == nil {
		t.Error("a guard that lost its token lets everything pass")
	}
	unread := fence.File{Path: filepath.Join(t.TempDir(), "f")}
	if err := os.Mkdir(unread.Path+".token", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unread.Write(13, nil); err == nil {
		t.Error("a guard that cannot be read lets everything pass")
	}
}

// rows is an Execer. Its value is the number of affected rows. If it is negative, statements fail.
type rows int64

func (r rows) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	if r < 0 {
		return nil, errors.New("no such table")
	}
	return r, nil
}
func (r rows) LastInsertId() (int64, error) { return 0, nil }
func (r rows) RowsAffected() (int64, error) { return int64(r), nil }

func TestExec(t *testing.T) {
	ctx := t.Context()
	if err := fence.Exec(ctx, rows(1), "x", 3, "UPDATE"); err != nil {
		t.Error(err)
	}
	if err := fence.Exec(ctx, rows(0), "x", 3, "UPDATE"); !errors.Is(err, fence.ErrStale) {
		t.Errorf("no row touched: %v", err)
	}
	if err := fence.Exec(ctx, rows(-1), "x", 3, "UPDATE"); err == nil || errors.Is(err, fence.ErrStale) {
		t.Errorf("a failed statement: %v", err)
	}
	if err := fence.Exec(ctx, rows(1), "x", 0, "UPDATE"); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("zero: %v", err)
	}
}

func TestRedisSet(t *testing.T) {
	server, err := redisserver.Start(t.Context(), nil)
	servers.Keep(t, "redis", server, err)
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	for i, step := range []struct {
		token uint64
		want  int64
	}{{9, 1}, {10, 1}, {9, 0}, {0, 0}, {1<<64 - 1, 1}, {1<<64 - 2, 0}, {1<<64 - 1, 1}} {
		got, err := c.Eval(t.Context(), fence.RedisSet, []string{"k", "k:token"}, fmt.Sprint(step.token), i).Int64()
		if err != nil || got != step.want {
			t.Errorf("step %d, token %d: %d (%v), want %d", i, step.token, got, err, step.want)
		}
	}
}
