package redlock

import (
	"context"
	"crypto/rand"
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

// markerKey is a hash on every node. Backends with different prefixes share it,
// because a loss of data concerns the whole node. No lock has this key: names
// that start with "~" are encoded.
const markerKey = "~redlock"

// marker returns the text that a node must have to vote: the admitted run and
// MaxTTL. "" means that the node needs no marker.
func (b *Backend) marker(runID string) string {
	if b.opts.Quarantine == "off" {
		return ""
	}
	return markerOf(runID, b.opts.MaxTTL)
}

func markerOf(runID string, maxTTL time.Duration) string {
	return fmt.Sprintf("%s %d", runID, maxTTL.Milliseconds())
}

// quarantine is what a host knows of one node's quarantine. It counts time by
// episode, which is one stretch of quarantine, and not by connection: an
// episode that is seen twice has lasted all the time between.
type quarantine struct {
	episode string    // "" while the node votes
	since   time.Time // when this host first saw the episode
	ends    time.Time // until when the node does not vote, at the latest
	next    time.Time // when to ask the node again
}

// clocksEvery is how often a host asks a node in quarantine while it does not
// know the clocks of the other nodes.
const clocksEvery = 100 * time.Millisecond

// clocks returns bounds of the clocks of the nodes other than n, or nil when n
// and the nodes that answer are not a majority.
func (b *Backend) clocks(n *node) (earliest, latest any) {
	var lowest, highest int64
	known, clock := 1, b.clock()
	for _, other := range b.nodes {
		low, high := other.ahead.Load(), other.maxAhead.Load()
		if state, _ := other.status(); other == n || state != up || low == 0 || high == 0 {
			continue
		}
		if known == 1 || low < lowest {
			lowest = low
		}
		if known == 1 || high > highest {
			highest = high
		}
		known++
	}
	if known < b.quorum {
		return nil, nil
	}
	return clock + lowest, clock + highest
}

// admission has the arguments of lua/admit.lua.
type admission struct {
	marker, watched  string
	lasts            time.Duration
	earliest, latest any // bounds of the other nodes' clocks; nil when not known
}

// send runs lua/admit.lua. It returns the node's marker, its episode, and how long
// the episode still lasts by the clocks, or -1 when the clocks are not known.
func (a admission) send(ctx context.Context, conn *goredis.Conn) (has, episode string, left time.Duration, err error) {
	lasts := (a.lasts + a.lasts/100).Microseconds() // for clocks of different speed
	args := []any{a.marker, a.watched, rand.Text(), lasts}
	if a.earliest != nil {
		args = append(args, a.earliest, a.latest)
	}
	reply, err := conn.Eval(ctx, admitLua, []string{markerKey}, args...).Slice()
	if err != nil {
		return "", "", 0, redisnode.Explain(err)
	}
	if len(reply) != 3 {
		return "", "", 0, redisnode.ErrReply(reply)
	}
	f := redisnode.Fields(reply)
	return f.Text(0), f.Text(1), time.Duration(f.Number(2)) * time.Microsecond, nil
}

// checkQuarantine asks about the node's quarantine, and ends it when its time is over.
func (c *connection) checkQuarantine(ctx context.Context) error {
	q, b := c.n.held, c.n.b
	ask := admission{marker: c.marker, lasts: b.opts.MaxTTL}
	ask.earliest, ask.latest = b.clocks(c.n)
	if q.episode != "" && time.Since(q.since) >= b.opts.MaxTTL {
		ask.watched = q.episode
	}
	marker, episode, left, err := ask.send(ctx, c.conn)
	if err != nil {
		return err
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
		if by := now.Add(left); by.Before(q.ends) {
			q.ends = by
		}
		q.next = q.ends
	}
	c.n.quarantine(q)
	return nil
}

// initNodes is the command init, which lets every node vote at once. That is safe
// only when no host holds a lock. So init refuses when only some nodes vote,
// because then the other nodes have lost their data while the set was in use.
func initNodes(ctx context.Context, cfg driver.Config, stdout io.Writer) error {
	if err := initAll(ctx, optionsOf(cfg, slog.New(slog.DiscardHandler)), stdout); err != nil {
		return fmt.Errorf("redlock: init: %w", err)
	}
	return nil
}

// initCommand returns the command line of init, for the user to copy. The user
// must add other settings, such as passwords, as a file.
func (b *Backend) initCommand() string {
	var addrs []string
	for _, n := range b.nodes {
		addrs = append(addrs, n.addr)
	}
	return "lockplugin-redlock init --address=" + strings.Join(addrs, ",")
}

// fresh is a node that the command init sets up.
type fresh struct {
	addr   string
	conn   *goredis.Conn
	runID  string
	marker string // the marker that it should have
	votes  bool
}

func initAll(ctx context.Context, o Options, stdout io.Writer) error {
	addrs, err := o.resolve()
	if err != nil {
		return err
	}
	var nodes []*fresh
	var failed error
	voting := 0
	runs := map[string]string{}
	for _, a := range addrs {
		client, err := newClient(o, a, &redisnode.Links{})
		if err != nil {
			return err
		}
		defer client.Close()
		f := &fresh{addr: a.Addr, conn: client.EphemeralConn()}
		defer f.conn.Close()
		nodes = append(nodes, f)
		if err := f.look(ctx, o.MaxTTL); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if other, ok := runs[f.runID]; ok {
			return duplicateNode(other, f.addr)
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
			driver.ErrDenied, voting, len(nodes), o.MaxTTL)
	}
	return admitAll(ctx, nodes, o.MaxTTL, stdout)
}

func admitAll(ctx context.Context, nodes []*fresh, maxTTL time.Duration, stdout io.Writer) error {
	for _, f := range nodes {
		ask := admission{marker: f.marker, watched: "*", lasts: maxTTL}
		if _, _, _, err := ask.send(ctx, f.conn); err != nil {
			return fmt.Errorf("%s: %w", f.addr, err)
		}
		fmt.Fprintf(stdout, "%s votes\n", f.addr)
	}
	return nil
}

// look reads the node's server, and whether the node votes.
func (f *fresh) look(ctx context.Context, maxTTL time.Duration) error {
	s, err := redisnode.ReadServer(ctx, f.conn)
	if err != nil {
		return redisnode.Explain(err)
	}
	if err := s.Unsafe(f.addr, redisnode.Alone, false); err != nil {
		return err
	}
	f.runID, f.marker = s.RunID, markerOf(s.RunID, maxTTL)
	has, err := f.conn.HGet(ctx, markerKey, "marker").Result()
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
