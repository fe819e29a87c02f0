package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// asked returns a step that calls the function do with an etcd client of all members.
func asked(do func(context.Context, *clientv3.Client) error) servers.Step {
	return servers.On(func(ctx context.Context, s *store, _ int) error {
		return s.with(func(c *clientv3.Client) error { return do(ctx, c) })
	})
}

// alarm returns a step that raises or ends the alarm of a full database on the first member. During
// the alarm the cluster refuses all requests that need space.
func alarm(what pb.AlarmRequest_AlarmAction) servers.Step {
	return asked(func(ctx context.Context, c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
			Action: what, MemberID: list.Members[0].ID, Alarm: pb.AlarmType_NOSPACE,
		})
		return err
	})
}

// cutOff(true) returns a step that cuts member n off from all members. cutOff(false) undoes that.
func cutOff(is bool) servers.Step {
	return servers.On(func(_ context.Context, s *store, n int) error {
		s.peers.CutOff(n, is)
		return nil
	})
}

// deleted returns a step that deletes key or, if opts has WithPrefix, all keys that begin with key.
func deleted(key string, opts ...clientv3.OpOption) servers.Step {
	return asked(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Delete(ctx, key, opts...)
		return err
	})
}

// election is the longest time from the loss of a leader until clients are served again. It
// includes one second, because for this time a client stays with a member that has no leader.
const election = 3 * time.Second

// The constant longer is above the TTL of every lease in the random search for failures.
const longer = 12 * time.Second

var operations = []servers.Operation{
	{Name: "compact", Does: "the history of the keys is compacted", Do: asked(compact)},
	{
		Name: "defragment", Does: "%s is defragmented", Server: true,
		Do: servers.On(func(ctx context.Context, s *store, n int) error {
			return s.with(func(c *clientv3.Client) error {
				_, err := c.Defragment(ctx, s.Servers[n].Addr())
				return err
			}, n)
		}),
	},
	{
		Name: "no-space", Does: "the database is full, and refuses what needs space", Lasts: servers.WhileWatched, StopsGrants: true, Recovers: time.Second,
		Do: alarm(pb.AlarmRequest_ACTIVATE), Undo: alarm(pb.AlarmRequest_DEACTIVATE),
	},
	// The store serves no host while the leader changes and while clients move to another member.
	{Name: "move-leader", Does: "%s is made the leader", Settings: []string{Three, Balanced}, Server: true, Stops: true, Recovers: time.Second, Do: servers.On(moveLeader)},
	{
		Name: "remove", Does: "%s is removed from the cluster, and added again without its data", Settings: []string{Three, Balanced}, Server: true, Lasts: servers.WhileWatched, Stops: true, Recovers: election,
		Do: servers.On(removeMember), Undo: servers.On(addMember),
	},
	{
		Name: "cut-off", Does: "%s is cut off from the other members, and clients reach it", Settings: []string{Three, Balanced}, Server: true, Lasts: [2]time.Duration{longer, longer}, Stops: true, StopsFor: election, Recovers: election,
		Do: cutOff(true), Undo: cutOff(false),
	},
	{
		Name: "stray", Does: "the address of %s leads to another cluster", Settings: []string{Three}, Server: true, Lasts: servers.UntilLost, Stops: true, StopsFor: election, Recovers: election,
		Makes: []claim.Condition{claim.TwoStores}, Do: servers.On(goAstray), Undo: servers.On(comeBack),
	},
	{
		Name: "generation", Does: "the generation key is deleted by hand", Makes: []claim.Condition{claim.EndedByHand},
		Do: deleted(etcdPrefix + "\xffe"),
	},
	{Name: "delete", Does: "a lock is deleted by hand", Makes: []claim.Condition{claim.EndedByHand}, Do: deletedFrom(0)},
	// If a waiter's queue entry is deleted, all rules still hold, because the holder keeps the lock.
	{Name: "entry-deleted", Does: "the queue entry of a waiter is deleted by hand", Do: deletedFrom(1)},
	{
		Name: "wipe", Does: "all keys of the locks are deleted", Makes: []claim.Condition{claim.DataLost},
		Do: deleted(etcdPrefix, clientv3.WithPrefix()),
	},
}

func compact(ctx context.Context, c *clientv3.Client) error {
	now, err := c.Get(ctx, etcdPrefix, clientv3.WithCountOnly())
	if err != nil {
		return err
	}
	_, err = c.Compact(ctx, now.Header.Revision)
	if err != nil && strings.Contains(err.Error(), "has been compacted") {
		return nil // no revision was written since the last compaction
	}
	return err
}

// deletedFrom returns a step that deletes one entry of a random lock's queue. If place is 0, it
// deletes the first entry, which is the holder's. If place is 1, it deletes a waiter's entry. The
// step waits at most 2 s for this entry, and deletes it only while the first entry exists.
func deletedFrom(place int) servers.Step {
	return asked(func(ctx context.Context, c *clientv3.Client) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return servers.Retry(ctx, "an entry is deleted", func() error {
			keys, err := c.Get(ctx, etcdNames, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			if err != nil {
				return err
			}
			queues := map[string][]*mvccpb.KeyValue{}
			for _, kv := range keys.Kvs {
				name := kv.Key[:bytes.LastIndexByte(kv.Key, '\xff')]
				queues[string(name)] = append(queues[string(name)], kv)
			}
			for _, q := range queues { // in random order
				if len(q) <= place {
					continue
				}
				one := q[place+rand.IntN(max(1, place*(len(q)-place)))]
				now := func(kv *mvccpb.KeyValue) clientv3.Cmp {
					return clientv3.Compare(clientv3.CreateRevision(string(kv.Key)), "=", kv.CreateRevision)
				}
				if resp, err := c.Txn(ctx).If(now(q[0]), now(one)).Then(clientv3.OpDelete(string(one.Key))).Commit(); err != nil || resp.Succeeded {
					return err
				}
			}
			return errNoEntry
		})
	})
}

var errNoEntry = errors.New("no lock has such an entry")

func moveLeader(ctx context.Context, s *store, n int) error {
	leader, err := s.Leader(ctx)
	if err != nil || leader == n {
		return err
	}
	return s.with(func(c *clientv3.Client) error {
		status, err := c.Status(ctx, s.Servers[n].Addr())
		if err != nil {
			return err
		}
		_, err = c.MoveLeader(ctx, status.Header.MemberId)
		return err
	}, leader)
}

// goAstray starts another cluster, and leads the hosts' proxies for member n to that cluster.
func goAstray(ctx context.Context, s *store, n int) (err error) {
	if s.stray, err = StartCluster(ctx, 1, nil); err != nil {
		return err
	}
	return s.Lead(n, (*inject.Proxy).Retarget, s.stray[0].Addr())
}

func comeBack(_ context.Context, s *store, n int) error {
	err := s.Lead(n, (*inject.Proxy).Retarget, s.Servers[n].Addr())
	return errors.Join(err, s.endStray())
}

func (s *store) endStray() error {
	err := s.stray.Close()
	s.stray = nil
	return err
}

func (s *store) others(n int) []int {
	var all []int
	for i := range s.Servers {
		if i != n {
			all = append(all, i)
		}
	}
	return all
}

// removeMember removes member n from the cluster. The member's process then ends.
func removeMember(ctx context.Context, s *store, n int) error {
	return s.with(func(c *clientv3.Client) error {
		list, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Members {
			if m.Name == fmt.Sprint("m", n+1) {
				if _, err = c.MemberRemove(ctx, m.ID); err == nil {
					s.removed = m.PeerURLs
				}
				return err
			}
		}
		return fmt.Errorf("there is no member %d", n)
	}, s.others(n)...)
}

// addMember adds member n to the cluster again, if it was removed, and starts it without its data.
func addMember(ctx context.Context, s *store, n int) error {
	if s.removed == nil {
		return nil
	}
	err := s.with(func(c *clientv3.Client) error {
		return servers.Retry(ctx, "the member is added", func() error {
			// If a member passes this request to a leader that has just ended, the member never answers.
			once, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.MemberAdd(once, s.removed)
			if errors.Is(err, rpctypes.ErrPeerURLExist) {
				return nil
			}
			return err
		})
	}, s.others(n)...)
	s.removed = nil
	return errors.Join(err, s.Servers[n].Stop(), s.Servers[n].Join(ctx))
}
