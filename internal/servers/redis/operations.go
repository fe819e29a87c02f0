package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

func command(args ...any) servers.Step {
	return servers.On(func(ctx context.Context, s *store, n int) error { return s.do(ctx, n, args...) })
}

func setting(name string, value any) servers.Step { return command("CONFIG", "SET", name, value) }

func began(name string) servers.Step { return setting(name, beganAs[name]) }

// disconnect ends all connections of hosts. The step unsubscribe ends only those that subscribe.
var (
	disconnect  = servers.InTurn(disconnectAll("NORMAL"), unsubscribe)
	unsubscribe = disconnectAll("PUBSUB")
)

func disconnectAll(kind string) servers.Step {
	return servers.On(func(ctx context.Context, s *store, n int) error {
		return s.do(ctx, n, "CLIENT", "KILL", "USER", s.User, "TYPE", kind)
	})
}

// The full step lowers the memory limit of a server below the memory that the server uses.
var full = setting("maxmemory", 1)

// missingReplicas is larger than the number of replicas of any server.
const missingReplicas = 10

// onServers are the operations that an operator does to one server.
var onServers = []servers.Operation{
	{
		Name: "policy", Does: "%s gets an evicting maxmemory-policy, without a limit of its memory", Lasts: servers.WhileWatched, Stops: true, Recovers: 2 * time.Second,
		Do: setting("maxmemory-policy", "allkeys-lru"), Undo: began("maxmemory-policy"),
	},
	{
		Name: "evict", Does: "%s is full, and evicts keys", Lasts: servers.WhileWatched, Stops: true, Recovers: 2 * time.Second, Makes: []claim.Condition{claim.Evicting}, Forgets: true,
		Do: servers.InTurn(setting("maxmemory-policy", "allkeys-random"), full), Undo: servers.InTurn(began("maxmemory"), began("maxmemory-policy")),
	},
	{
		Name: "full", Does: "%s is full, and refuses what needs memory", Lasts: servers.WhileWatched, StopsGrants: true,
		Do: full, Undo: began("maxmemory"),
	},
	{
		Name: "maxclients", Does: "%s ends all connections and takes one at a time", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.InTurn(setting("maxclients", 1), command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")), Undo: began("maxclients"),
	},
	{
		Name: "read-only", Does: "%s misses a replica, and refuses writes", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		// A master with too few replicas refuses writes, like a master whose disk is full.
		Do: setting("min-replicas-to-write", missingReplicas), Undo: began("min-replicas-to-write"),
	},
	{
		Name: "demote", Does: "%s is demoted to a replica, and promoted again", Lasts: [2]time.Duration{10 * time.Millisecond, 3 * time.Second}, Stops: true, Recovers: time.Second,
		Settings: []string{servers.Plain, servers.WithReplica},
		Do:       command("REPLICAOF", "127.0.0.1", "1"), Undo: servers.On(promoteAgain),
	},
	{Name: "kill", Does: "%s ends all connections of hosts", Do: disconnect},
	{
		Name: "pause", Does: "%s lets writes wait", Lasts: servers.WhileWatched, Stops: true,
		Do: command("CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE"), Undo: command("CLIENT", "UNPAUSE"),
	},
	{Name: "scripts", Does: "%s forgets all scripts", Do: command("SCRIPT", "FLUSH")},
	{Name: "save", Does: "%s writes its data to the disk", Do: servers.On(save)},
	{
		Name: "password", Does: "%s has another password than the hosts, and ends their connections", Lasts: servers.WhileWatched, Stops: true, Recovers: time.Second,
		Do: servers.InTurn(account("resetpass", ">"+servers.OtherPassword), disconnect), Undo: servers.InTurn(account("resetpass", ">"+servers.HostPassword), disconnect),
	},
	{
		Name: "right", Does: "%s takes the right to SETRANGE away from the hosts", Lasts: servers.WhileWatched, StopsGrants: true, Recovers: time.Second,
		Do: account("-setrange"), Undo: account("+@all"),
	},
	{
		// A waiter without a subscription is not woken, but asks the store at intervals.
		Name: "subscribe", Does: "%s takes the right to subscribe away from the hosts, and ends their subscriptions", Lasts: servers.WhileWatched,
		Do: servers.InTurn(account("-subscribe", "-ssubscribe", "-psubscribe"), unsubscribe), Undo: account("+@all"),
	},
	{Name: "flush", Does: "%s loses all keys (FLUSHALL)", Makes: []claim.Condition{claim.DataLost}, Forgets: true, Do: command("FLUSHALL")},
	{Name: "delete", Does: "a lock is deleted by hand on %s", Makes: []claim.Condition{claim.EndedByHand}, Do: servers.On(deleteLock)},
}

// onGroups are the operations that an operator does to all servers together.
var onGroups = []servers.Operation{
	Rotation,
	{
		Name: "failover", Does: "the replica takes over, in order, and hosts are led to it; later they are led back", Settings: []string{servers.WithReplica},
		Lasts: [2]time.Duration{100 * time.Millisecond, 3 * time.Second}, Stops: true, Recovers: time.Second, Makes: []claim.Condition{claim.FailedOver},
		Do: failForth((*inject.Proxy).Retarget), Undo: failBack((*inject.Proxy).Retarget),
	},
	{
		// If a reply shows that a connection leads to a replica, the host closes the connection.
		Name: "repoint", Does: "the replica takes over, in order, and new connections of hosts lead to it; those that there are stay at the old master", Settings: []string{servers.WithReplica},
		Lasts: servers.UntilLost, Stops: true, StopsFor: time.Second, Recovers: time.Second, Makes: []claim.Condition{claim.FailedOver},
		Do: failForth((*inject.Proxy).Lead), Undo: failBack((*inject.Proxy).Lead),
	},
	{
		// On the second master the lock is free. But a host that has used the first master refuses the
		// second master as long as the first serves that host.
		Name: "two-masters", Does: "the replica is promoted beside the server, and new connections of hosts lead to both in turn", Settings: []string{servers.WithReplica},
		Lasts: servers.UntilLost, Makes: []claim.Condition{claim.TwoStores},
		Do: func(ctx context.Context, e *servers.Environment, _ int) error {
			return errors.Join(promote(ctx, e.Replica.Addr()), e.Lead(0, (*inject.Proxy).Lead, e.Servers[0].Addr(), e.Replica.Addr()))
		},
		Undo: func(ctx context.Context, e *servers.Environment, _ int) error { return rejoin(ctx, e) },
	},
	{
		Name: "promote", Does: "the server dies, and the replica, which has missed the last writes, takes over", Settings: []string{servers.WithReplica},
		Lasts: [2]time.Duration{100 * time.Millisecond, 3 * time.Second}, Stops: true, Recovers: time.Second, Makes: []claim.Condition{claim.ReplicaPromoted},
		Do: promoteLate, Undo: failBack((*inject.Proxy).Retarget),
	},
	{
		Name: "restore", Does: "all keys are saved, and restored later", Settings: []string{servers.Plain, servers.WithReplica}, Lasts: servers.WhileWatched,
		Makes: []claim.Condition{claim.OldData}, Do: servers.On(saveKeys), Undo: servers.On(restoreKeys),
	},
	{
		Name: "slots", Does: "the slots of the locks are moved to another node, half of each at first", Settings: []string{Cluster}, Lasts: servers.WhileWatched, Recovers: time.Second,
		Makes: []claim.Condition{claim.SlotMoving},
		Do:    servers.On(beginMoves), Undo: servers.On(endMoves),
	},
}

// staged are operations on a master with replicas; see [servers.Kind].Staged.
var staged = []servers.Operation{
	{
		Name: "sever", Does: "the replica receives nothing from the master",
		Do:   func(_ context.Context, e *servers.Environment, _ int) error { return e.Link.BlackHole() },
		Undo: func(_ context.Context, e *servers.Environment, _ int) error { return e.Link.Heal() },
	},
	{
		Name: "take-over", Does: "the master dies, the replica takes over, and host A learns of it after all others",
		Do: func(ctx context.Context, e *servers.Environment, _ int) error {
			err := takeOver(ctx, e, e.Paths[1:])
			e.Later("take-over", learnsLater, func() error { return e.Paths[0][0].Retarget(e.Replica.Addr()) })
			return err
		},
	},
	{Name: "sentinel", Does: "Sentinel lets a replica take over, in order", Do: sentinelFailOver},
	demotion("demotion", "the replica is promoted and the master made its replica, to which hosts are led until the end", (*inject.Proxy).Retarget),
	demotion("demotion-uncut", "the same, and no connection is cut when hosts are led to the new master", (*inject.Proxy).Lead),
}

// learnsLater is the delay until the last host learns of a new master that the other hosts know. In
// production, some clients learn of a new master a second or more after other clients.
const learnsLater = 500 * time.Millisecond

// demotion returns an operation that swaps the roles of master and replica. Hosts stay at the old
// master until Undo leads them to the new master.
func demotion(name, does string, by inject.Leading) servers.Operation {
	return servers.Operation{
		Name: name, Does: does,
		Do: func(ctx context.Context, e *servers.Environment, _ int) error {
			return errors.Join(promote(ctx, e.Replica.Addr()), follow(ctx, e.Servers[0].Addr(), e.Replica.Addr()))
		},
		Undo: func(_ context.Context, e *servers.Environment, _ int) error { return e.Lead(0, by, e.Replica.Addr()) },
	}
}

// Evictions are operations that make all servers evict keys. Hosts notice this within about 1 s.
var Evictions = []servers.Operation{
	{
		Name: "fill-later", Does: "the servers are told to evict keys, and are full 3 s later", Undo: keeping,
		Do: func(ctx context.Context, e *servers.Environment, n int) error {
			err := evicting(ctx, e, n)
			e.Later("fill-later", 3*time.Second, func() error { return fill(ctx, e, n) })
			return err
		},
	},
	{Name: "fill", Does: "the servers are full, and evict keys", Do: servers.InTurn(evicting, fill), Undo: keeping},
}

var Rotation = servers.Operation{
	Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: servers.WhileWatched,
	Do: rotate(servers.HostPassword, servers.OtherPassword), Undo: rotate(servers.OtherPassword, servers.HostPassword),
}

// Operations returns a copy of [onServers]. The function as may change each operation in the copy.
func Operations(as func(*servers.Operation)) []servers.Operation {
	all := slices.Clone(onServers)
	for i := range all {
		all[i].Server = true
		as(&all[i])
	}
	return all
}

func save(ctx context.Context, s *store, n int) error {
	if err := s.do(ctx, n, "BGSAVE"); err != nil && !strings.Contains(err.Error(), "in progress") {
		return err
	}
	return nil
}

func account(rules ...any) servers.Step {
	return command(append([]any{"ACL", "SETUSER", servers.HostUser}, rules...)...)
}

// rotate returns a step that changes the password of the hosts. Until the
// new password is in the hosts' file, the servers accept both passwords.
func rotate(from, to string) servers.Step {
	write := func(_ context.Context, e *servers.Environment, _ int) error { return e.WritePassword(to) }
	return servers.InTurn(servers.OnEach(account(">"+to)), write, servers.OnEach(account("<"+from)), servers.OnEach(disconnect))
}

// promoteAgain makes server n a master again, and waits until its replica, if any, follows it.
func promoteAgain(ctx context.Context, s *store, n int) error {
	err := s.do(ctx, n, "REPLICAOF", "NO", "ONE")
	if s.Replica != nil {
		err = errors.Join(err, awaitLink(ctx, s.Replica.Addr()))
	}
	return err
}

// takeOver kills the master and makes the replica the master. It leads the proxies in
// paths to the new master, and starts the old master as a replica, without its data.
func takeOver(ctx context.Context, e *servers.Environment, paths [][]*inject.Proxy) error {
	old := e.Servers[0]
	lead := func(p []*inject.Proxy) error { return p[0].Retarget(e.Replica.Addr()) }
	if err := errors.Join(old.Stop(), promote(ctx, e.Replica.Addr()), inject.Each(paths, lead)); err != nil {
		return err
	}
	return errors.Join(old.Start(ctx, false), follow(ctx, old.Addr(), e.Replica.Addr()))
}

// promoteLate kills the master and promotes the replica, which has missed the last writes.
func promoteLate(ctx context.Context, e *servers.Environment, _ int) error {
	if err := e.Link.BlackHole(); err != nil {
		return err
	}
	time.Sleep(missed)
	return takeOver(ctx, e, e.Paths)
}

// missed is the time for which the replica receives no writes before its promotion.
const missed = 300 * time.Millisecond

func deleteLock(ctx context.Context, s *store, n int) error {
	keys, err := scan(ctx, s.admins[n], "*")
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "~") })
	if err != nil || len(keys) == 0 {
		return err
	}
	return s.do(ctx, n, "DEL", keys[rand.IntN(len(keys))])
}

// The keys of the fill step need more memory than the servers have left (spareMemory). So the
// servers evict other keys, such as locks.
const (
	spareMemory = 4 << 20
	fillerSize  = 64 << 10
	fillers     = 1000
)

// The evicting step allows servers to evict keys, and limits their memory to little more than they
// use. The keeping step undoes both changes, and deletes the keys of the fill step.
var (
	evicting = servers.OnEach(servers.On(func(ctx context.Context, s *store, n int) error {
		info, err := s.admins[n].InfoMap(ctx, "memory").Result()
		if err != nil {
			return err
		}
		used, err := strconv.Atoi(info["Memory"]["used_memory"])
		return errors.Join(err, s.do(ctx, n, "CONFIG", "SET", "maxmemory", used+spareMemory),
			s.do(ctx, n, "CONFIG", "SET", "maxmemory-policy", "allkeys-random"))
	}))
	keeping = servers.OnEach(servers.InTurn(began("maxmemory-policy"), began("maxmemory"), command(append([]any{"UNLINK"}, fillerKeys...)...)))
)

// The fill step writes so much at once that servers evict keys before hosts read the policy again.
var fill = servers.OnEach(servers.On(func(ctx context.Context, s *store, n int) error {
	value := strings.Repeat(" ", fillerSize)
	_, err := s.admins[n].Pipelined(ctx, func(all goredis.Pipeliner) error {
		for _, key := range fillerKeys {
			all.Do(ctx, "SET", key, value)
		}
		return nil
	})
	return err
}))

var fillerKeys = func() (keys []any) {
	for i := range fillers {
		keys = append(keys, fmt.Sprint("filler:", i))
	}
	return keys
}()

type savedKey struct {
	name, data string
	expires    int64 // in ms since 1970; below 0 if the key does not expire
}

func saveKeys(ctx context.Context, s *store, n int) error {
	s.saved = nil
	keys, err := scan(ctx, s.admins[n], "*")
	if err != nil {
		return err
	}
	for _, key := range keys {
		expires, err := s.admins[n].Do(ctx, "PEXPIRETIME", key).Int64()
		if err != nil {
			return err
		}
		// Do not save a key that was missing when its expiry was read. If the key exists again now,
		// restoreKeys would write it without an expiry.
		const gone = -2
		if data, err := s.admins[n].Dump(ctx, key).Result(); err == nil && expires != gone {
			s.saved = append(s.saved, savedKey{key, data, expires})
		}
	}
	return nil
}

// restoreKeys deletes all keys and writes the saved keys. The server does not restore keys that
// have expired since they were saved.
func restoreKeys(ctx context.Context, s *store, n int) error {
	err, failed := s.do(ctx, n, "FLUSHALL"), 0
	for _, key := range s.saved {
		if one := s.do(ctx, n, "RESTORE", key.name, max(0, key.expires), key.data, "ABSTTL", "REPLACE"); one != nil {
			err, failed = cmp.Or(err, one), failed+1
		}
	}
	s.saved = nil
	if failed > 1 {
		err = fmt.Errorf("%d keys were not restored: %w", failed, err)
	}
	return err
}
