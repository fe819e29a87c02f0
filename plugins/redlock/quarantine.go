package redlock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// markerKey is a hash on every node. Data are lost by the node and not by a
// prefix, so backends with different prefixes share it. No lock has this key:
// names that start with "~" are encoded.
const markerKey = "~redlock"

// marker is what a node must have so that it votes: the run that was admitted,
// and for which bound of TTLs. "" asks for none.
func (b *Backend) marker(runID string) string {
	if b.opts.Quarantine == "off" {
		return ""
	}
	return markerOf(runID, b.opts.MaxTTL)
}

func markerOf(runID string, maxTTL time.Duration) string {
	return fmt.Sprintf("%s %d", runID, maxTTL.Milliseconds())
}

// markerRun is the run that a marker admits.
func markerRun(marker string) string {
	run, _, _ := strings.Cut(marker, " ")
	return run
}

// initNodes is the command init: it lets every node vote at once. That is safe
// only where no host holds a lock, so it refuses when some nodes already vote
// and others do not: those have lost their data in a cluster that is in use.
func initNodes(ctx context.Context, cfg driver.Config, stdout io.Writer) error {
	o, addrs, err := optionsOf(cfg).resolve()
	if err != nil {
		return fmt.Errorf("redlock: init: %w", err)
	}
	var nodes []*fresh
	for _, a := range addrs {
		client, err := newClient(o, a, slog.New(slog.DiscardHandler))
		if err != nil {
			return fmt.Errorf("redlock: init: %w", err)
		}
		defer client.Close()
		nodes = append(nodes, &fresh{addr: a.Addr, conn: client.EphemeralConn()})
	}
	if err := initAll(ctx, nodes, o.MaxTTL, stdout); err != nil {
		return fmt.Errorf("redlock: init: %w", err)
	}
	return nil
}

// fresh is a node that is being set up.
type fresh struct {
	addr   string
	conn   *goredis.Conn
	runID  string
	marker string // that it should have
	votes  bool
}

func initAll(ctx context.Context, nodes []*fresh, maxTTL time.Duration, stdout io.Writer) error {
	var failed error
	voting := 0
	runs := map[string]string{}
	for _, f := range nodes {
		defer f.conn.Close()
		if err := f.look(ctx, maxTTL); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if other, ok := runs[f.runID]; ok {
			return twins(other, f.addr)
		}
		runs[f.runID] = f.addr
		if f.votes {
			voting++
		}
	}
	if failed != nil {
		return failed
	}
	if voting > 0 && voting < len(nodes) {
		return fmt.Errorf("%w: %d of %d nodes vote already, so the others have lost data that locks may depend on; they vote after max_ttl (%v) by themselves",
			driver.ErrDenied, voting, len(nodes), maxTTL)
	}
	for _, f := range nodes {
		if _, _, err := admit(ctx, f.conn, f.marker, "*"); err != nil {
			return fmt.Errorf("%s: %w", f.addr, err)
		}
		fmt.Fprintf(stdout, "%s votes\n", f.addr)
	}
	return nil
}

// look reads what the node is and whether it votes.
func (f *fresh) look(ctx context.Context, maxTTL time.Duration) error {
	s, err := redisnode.ReadServer(ctx, f.conn)
	if err != nil {
		return explain(err)
	}
	if err := s.Unsafe(f.addr, redisnode.Alone); err != nil {
		return err
	}
	f.runID, f.marker = s.RunID, markerOf(s.RunID, maxTTL)
	has, err := f.conn.HGet(ctx, markerKey, "marker").Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return explain(err)
	}
	f.votes = has != "" && markerRun(has) == s.RunID
	return nil
}
