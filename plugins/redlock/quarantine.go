package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// markerKey is the key of a hash that says whether a node may vote. Backends with different
// prefixes share this hash, because a node that loses its data loses the data of all prefixes. No
// lock has this key, because lock names that start with "~" are encoded.
const markerKey = "~redlock"

// marker returns the text that a node's hash must have before the node may vote: the server's run
// id and MaxTTL. It returns "" if quarantine is off.
func (o Options) marker(runID string) string {
	if o.Quarantine == "off" {
		return ""
	}
	return fmt.Sprintf("%s %d", runID, o.MaxTTL.Milliseconds())
}

// quarantine is what a host knows about one node's quarantine. Each quarantine has a random id (the
// episode), which is stored on the node. If a host reads the same episode twice, the quarantine did
// not end between the two reads, even if the connection broke.
type quarantine struct {
	episode string    // its random id; "" while the node votes
	since   time.Time // when this host first saw the episode
	ends    time.Time // when the node votes again, at the latest
	next    time.Time // when to ask the node again
}

// clocksEvery is the interval at which a host asks a node whether its quarantine is over, as long
// as the host does not know the other nodes' clocks.
const clocksEvery = 100 * time.Millisecond

// clocks returns the lowest and the highest clock of the connected nodes except n. It returns none
// if these nodes together with n are no majority.
func (b *Backend) clocks(n *node) []any {
	var lows, highs []int64
	for _, other := range b.nodes {
		low, high := other.ahead.Load(), other.maxAhead.Load()
		if state, _ := other.status(); other != n && state == up && low != 0 && high != 0 {
			lows, highs = append(lows, low), append(highs, high)
		}
	}
	if len(lows)+1 < b.quorum {
		return nil
	}
	clock := b.clock()
	return []any{clock + slices.Min(lows), clock + slices.Max(highs)}
}

// admit runs lua/admit.lua. It returns the node's marker, the id of its quarantine ("" for none),
// and the rest of the quarantine by the nodes' clocks (negative if they are not known).
func admit(ctx context.Context, c goredis.Scripter, marker, watched string, lasts time.Duration, clocks ...any) (has, episode string, left time.Duration, err error) {
	lasts += lasts / 100 // because clocks differ in speed
	args := append([]any{marker, watched, rand.Text(), lasts.Microseconds()}, clocks...)
	reply, err := c.Eval(ctx, admitLua, []string{markerKey}, args...).Slice()
	if err != nil {
		return "", "", 0, redisnode.Explain(err)
	}
	if len(reply) != 3 {
		return "", "", 0, redisnode.ErrReply(reply)
	}
	f := redisnode.Fields(reply)
	return f.Text(0), f.Text(1), time.Duration(f.Number(2)) * time.Microsecond, nil
}

// checkQuarantine reads the state of the node's quarantine, and ends the quarantine after MaxTTL.
func (c *connection) checkQuarantine(ctx context.Context) error {
	q, b, watched := c.n.held, c.n.b, ""
	if q.episode != "" && time.Since(q.since) >= b.opts.MaxTTL {
		watched = q.episode
	}
	marker, episode, left, err := admit(c.soon(ctx), c.conn, c.marker, watched, b.opts.MaxTTL, b.clocks(c.n)...)
	if err != nil {
		return c.late(err)
	}
	if episode == "" && marker != c.marker {
		_, ms, _ := strings.Cut(marker, " ")
		return fmt.Errorf("%w: max_ttl is %v here and %s ms where this node was admitted; it must be the same on every host",
			driver.ErrDenied, b.opts.MaxTTL, ms)
	}
	now := time.Now()
	if episode != q.episode {
		q.episode, q.since = episode, now
	}
	q.ends = q.since.Add(b.opts.MaxTTL)
	q.next = now.Add(clocksEvery)
	if left >= 0 {
		q.ends = now.Add(min(left, q.ends.Sub(now)))
		q.next = now.Add(min(lookEvery, q.ends.Sub(now)))
	}
	c.n.quarantine(q)
	return nil
}

// initNodes is the command init, which lets every node vote at once. That is safe only if no host
// holds a lock. If only some of the nodes vote, init fails, because the others have probably lost
// data while hosts used them.
func initNodes(ctx context.Context, cfg driver.Config, stdout io.Writer) error {
	if err := initAll(ctx, optionsOf(cfg, slog.New(slog.DiscardHandler)), stdout); err != nil {
		return fmt.Errorf("redlock: init: %w", err)
	}
	return nil
}

// initCommand returns a command line of init for the user to copy. The command line has only the
// addresses. The user must add other settings, such as passwords.
func (b *Backend) initCommand() string {
	var addrs []string
	for _, n := range b.nodes {
		addrs = append(addrs, n.addr)
	}
	return "lockplugin-redlock init --address=" + strings.Join(addrs, ",")
}

// fresh is a node that the command init lets vote.
type fresh struct {
	addr   string
	client *goredis.Client
	marker string // the marker that it should have; "" if its run id is not known
	votes  bool
}

func initAll(ctx context.Context, o Options, stdout io.Writer) error {
	addrs, err := o.resolve()
	if err != nil {
		return err
	}
	o.Quarantine = "on" // init writes markers in any case
	var nodes []*fresh
	var failed error
	voting := 0
	for _, a := range addrs {
		client, err := newClient(o, a, &redisnode.Links{})
		if err != nil {
			return err
		}
		defer client.Close()
		f := &fresh{addr: a.Addr, client: client}
		failed = errors.Join(failed, f.look(ctx, o))
		for _, other := range nodes {
			if f.marker != "" && f.marker == other.marker {
				return duplicateNode(other.addr, f.addr)
			}
		}
		nodes = append(nodes, f)
		if f.votes {
			voting++
		}
	}
	if failed != nil {
		return failed
	}
	if voting > 0 && voting < len(nodes) {
		return fmt.Errorf("%w: %d of %d nodes vote already, so the others have lost data that locks may depend on; they vote after max_ttl (%v) by themselves",
			driver.ErrDenied, voting, len(nodes), o.MaxTTL)
	}
	for _, f := range nodes {
		if _, _, _, err := admit(ctx, f.client, f.marker, "*", o.MaxTTL); err != nil {
			return fmt.Errorf("%s: %w", f.addr, err)
		}
		fmt.Fprintf(stdout, "%s votes\n", f.addr)
	}
	return nil
}

// look reads the node's run id and marker, which show whether the node votes.
func (f *fresh) look(ctx context.Context, o Options) error {
	s, err := redisnode.ReadServer(ctx, f.client)
	if err != nil {
		return redisnode.Explain(err)
	}
	if err := s.Unsafe(f.addr, redisnode.Alone, false); err != nil {
		return err
	}
	if s.RunID == "" {
		return hiddenRunID(f.addr)
	}
	f.marker = o.marker(s.RunID)
	has, err := f.client.HGet(ctx, markerKey, "marker").Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return redisnode.Explain(err)
	}
	run, ms, _ := strings.Cut(has, " ")
	if f.votes = has != "" && run == s.RunID; f.votes && has != f.marker {
		return fmt.Errorf("%w: %s votes with a max_ttl of %s ms, and every lease on it would be lost with another: stop all hosts, wait that long, and delete the key %s on every node first",
			driver.ErrDenied, f.addr, ms, markerKey)
	}
	return nil
}
