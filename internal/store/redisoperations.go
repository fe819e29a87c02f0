package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/claim"
)

// redisStep is one step of an operation on server n.
type redisStep func(ctx context.Context, s *redisStore, n int) error

func onRedis(do redisStep) func(context.Context, *Environment, int) error {
	if do == nil {
		return nil
	}
	return func(ctx context.Context, e *Environment, n int) error { return do(ctx, e.product.(*redisStore), n) }
}

// inTurn does several steps, whatever becomes of one.
func inTurn(steps ...redisStep) redisStep {
	return func(ctx context.Context, s *redisStore, n int) error {
		var errs []error
		for _, step := range steps {
			errs = append(errs, step(ctx, s, n))
		}
		return errors.Join(errs...)
	}
}

// command sends one.
func command(args ...any) redisStep {
	return func(ctx context.Context, s *redisStore, n int) error { return s.do(ctx, n, args...) }
}

func setting(name string, value any) redisStep {
	return func(ctx context.Context, s *redisStore, n int) error { return s.set(ctx, n, name, value) }
}

// began sets one to what it was.
func began(name string) redisStep { return setting(name, redisSettings[name]) }

func disconnect(ctx context.Context, s *redisStore, n int) error { return s.disconnect(ctx, n) }

// redisOperation is what an operator does to one server, alone or one of several.
type redisOperation struct {
	name, does string
	lasts      [2]time.Duration
	stops      bool // its clients, while it lasts
	grants     bool // it stops them, and no renewals
	recovers   time.Duration
	makes      []string
	notCluster bool // it cannot be done there
	forgets    bool // who was admitted to vote
	do, undo   redisStep
}

// whileWatched is how long what an operator does is usually there.
var whileWatched = [2]time.Duration{50 * time.Millisecond, 5 * time.Second}

// onServers are done to one server.
var onServers = []redisOperation{
	{
		name: "policy", does: "%s gets an evicting maxmemory-policy, without a limit of its memory", lasts: whileWatched, stops: true, recovers: 2 * time.Second,
		do: setting("maxmemory-policy", "allkeys-lru"), undo: began("maxmemory-policy"),
	},
	{
		name: "evict", does: "%s is full, and evicts keys", lasts: whileWatched, stops: true, recovers: 2 * time.Second, makes: []string{string(claim.Evicting)}, forgets: true,
		do: inTurn(setting("maxmemory-policy", "allkeys-random"), full), undo: inTurn(began("maxmemory"), began("maxmemory-policy")),
	},
	{
		name: "full", does: "%s is full, and refuses what needs memory", lasts: whileWatched, grants: true,
		do: full, undo: began("maxmemory"),
	},
	{
		name: "maxclients", does: "%s ends all connections and takes one at a time", lasts: whileWatched, stops: true, recovers: time.Second,
		do:   inTurn(setting("maxclients", 1), command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")),
		undo: began("maxclients"),
	},
	{
		name: "read-only", does: "%s misses a replica, and refuses writes", lasts: whileWatched, stops: true, recovers: time.Second,
		do: setting("min-replicas-to-write", missingReplicas), undo: began("min-replicas-to-write"),
	},
	{
		name: "demote", does: "%s is demoted to a replica, and promoted again", lasts: [2]time.Duration{10 * time.Millisecond, 3 * time.Second}, stops: true, recovers: time.Second,
		notCluster: true,
		do:         command("REPLICAOF", "127.0.0.1", "1"), undo: promoteAgain,
	},
	{name: "kill", does: "%s ends all connections of hosts", do: disconnect},
	{
		name: "pause", does: "%s lets writes wait", lasts: whileWatched, stops: true,
		do: command("CLIENT", "PAUSE", time.Minute.Milliseconds(), "WRITE"), undo: command("CLIENT", "UNPAUSE"),
	},
	{name: "scripts", does: "%s forgets all scripts", do: command("SCRIPT", "FLUSH")},
	{name: "save", does: "%s writes its data to the disk", do: save},
	{
		name: "password", does: "%s has another password than the hosts, and ends their connections", lasts: whileWatched, stops: true, recovers: time.Second,
		do: inTurn(account("resetpass", ">"+otherPassword), disconnect), undo: inTurn(account("resetpass", ">"+hostPassword), disconnect),
	},
	{
		name: "right", does: "%s takes the right to SETRANGE away from the hosts", lasts: whileWatched, grants: true, recovers: time.Second,
		do: account("-setrange"), undo: account("+@all"),
	},
	{name: "flush", does: "%s loses all keys (FLUSHALL)", makes: []string{string(claim.DataLost)}, forgets: true, do: command("FLUSHALL")},
	{name: "delete", does: "a lock is deleted by hand on %s", makes: []string{string(claim.EndedByHand)}, do: deleteLock},
}

// onGroups are done to the servers of a setting.
var onGroups = []Operation{
	rotation,
	{
		Name: "failover", Does: "the replica takes over, in order, and hosts are led to it; later they are led back", Settings: []string{WithReplica},
		Lasts: [2]time.Duration{100 * time.Millisecond, 3 * time.Second}, Stops: true, Recovers: time.Second, Makes: []string{string(claim.FailedOver)},
		Do: func(ctx context.Context, e *Environment, _ int) error {
			return e.failOver(ctx, e.servers[0].Addr(), e.servers[1].Addr())
		},
		Undo: func(ctx context.Context, e *Environment, _ int) error { return e.failBack(ctx) },
	},
	{
		Name: "promote", Does: "the server dies, and the replica, which has missed the last writes, takes over", Settings: []string{WithReplica},
		Lasts: [2]time.Duration{100 * time.Millisecond, 3 * time.Second}, Stops: true, Recovers: time.Second, Makes: []string{string(claim.ReplicaPromoted)},
		Do: promoteLate, Undo: func(ctx context.Context, e *Environment, _ int) error { return e.failBack(ctx) },
	},
	{
		Name: "restore", Does: "all keys are saved, and restored later", Settings: []string{Plain, WithReplica}, Lasts: whileWatched,
		Makes: []string{string(claim.OldData)}, Do: onRedis(saveKeys), Undo: onRedis(restoreKeys),
	},
	{
		Name: "slots", Does: "the slots of the locks are moved to another node, half of each at first", Settings: []string{Cluster}, Lasts: whileWatched, Recovers: time.Second,
		Makes: []string{string(claim.SlotMoving)},
		Do:    func(ctx context.Context, e *Environment, _ int) error { return e.Setup.Slots.Begin(ctx) },
		Undo:  func(ctx context.Context, e *Environment, _ int) error { return e.Setup.Slots.End(ctx) },
	},
}

// rotation is that of a password.
var rotation = Operation{
	Name: "rotate", Does: "the password of the hosts is changed, first in their file", Lasts: whileWatched,
	Do: rotate(hostPassword, otherPassword), Undo: rotate(otherPassword, hostPassword),
}

// operationsOn are [onServers], as the store that they are of has them.
func operationsOn(as func(redisOperation, *Operation)) []Operation {
	var all []Operation
	for _, r := range onServers {
		o := Operation{
			Name: r.name, Does: r.does, Server: true, Lasts: r.lasts, Stops: r.stops, StopsGrants: r.grants, Recovers: r.recovers, Makes: r.makes,
			Do: onRedis(r.do), Undo: onRedis(r.undo),
		}
		as(r, &o)
		all = append(all, o)
	}
	return all
}

// full gives the server less memory than it has.
func full(ctx context.Context, s *redisStore, n int) error { return s.set(ctx, n, "maxmemory", 1) }

// save writes a snapshot, unless one is being written.
func save(ctx context.Context, s *redisStore, n int) error {
	if err := s.do(ctx, n, "BGSAVE"); err != nil && !strings.Contains(err.Error(), "in progress") {
		return err
	}
	return nil
}

// account changes the rules of the hosts' account.
func account(rules ...any) redisStep {
	return command(append([]any{"ACL", "SETUSER", hostUser}, rules...)...)
}

// rotate lets hosts log in with another password: both are right until the file
// has the new one.
func rotate(from, to string) func(context.Context, *Environment, int) error {
	all := func(ctx context.Context, s *redisStore, step redisStep) error {
		var errs []error
		for n := range s.admins {
			errs = append(errs, step(ctx, s, n))
		}
		return errors.Join(errs...)
	}
	return onRedis(func(ctx context.Context, s *redisStore, _ int) error {
		return errors.Join(
			all(ctx, s, account(">"+to)), s.writePassword(to),
			all(ctx, s, account("<"+from)), all(ctx, s, disconnect))
	})
}

// promoteAgain ends a demotion, and waits for the replica, if there is one.
func promoteAgain(ctx context.Context, s *redisStore, n int) error {
	err := s.do(ctx, n, "REPLICAOF", "NO", "ONE")
	if s.Setup.Replica != nil {
		err = errors.Join(err, awaitLink(ctx, s.Setup.Replica.Addr()))
	}
	return err
}

// promoteLate is a failover after a crash. What has died comes back as a replica,
// without what it knew.
func promoteLate(ctx context.Context, e *Environment, _ int) error {
	if err := e.Setup.Link.BlackHole(); err != nil {
		return err
	}
	time.Sleep(missed)
	old, next := e.Setup.Servers[0], e.Setup.Replica
	err := errors.Join(old.Stop(), next.Promote(ctx), e.lead(0, next.Addr()))
	if err != nil {
		return err
	}
	return errors.Join(old.Start(ctx, false), next.Lead(ctx, old.Addr()))
}

// missed is how much of the last writes a replica has missed that is promoted.
const missed = 300 * time.Millisecond

// deleteLock deletes one of the keys that have locks.
func deleteLock(ctx context.Context, s *redisStore, n int) error {
	keys, err := s.lockKeys(ctx, n)
	if err != nil || len(keys) == 0 {
		return err
	}
	return s.do(ctx, n, "DEL", keys[rand.IntN(len(keys))])
}

// lockKeys are the keys of server n that have locks.
func (s *redisStore) lockKeys(ctx context.Context, n int) ([]string, error) {
	var keys []string
	all := s.admins[n].ScanType(ctx, 0, "*", 1000, "string").Iterator()
	for all.Next(ctx) {
		if !strings.HasPrefix(all.Val(), "~") {
			keys = append(keys, all.Val())
		}
	}
	return keys, all.Err()
}
