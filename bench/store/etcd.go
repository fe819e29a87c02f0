package store

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockbench/lockbench/bench/env"
	"github.com/lockbench/lockbench/core/driver"
)

// etcdMembers is the smallest cluster with a minority.
const etcdMembers = 3

func startEtcd(ctx context.Context, w Wish) (*Environment, error) {
	e := &Environment{address: byComma, Config: driver.Config{}}
	size := 1
	if w.Many {
		size = etcdMembers
	}
	members, err := env.StartEtcdCluster(ctx, size, nil)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	e.add(members...)
	e.Scene.ReadOnly = func(ctx context.Context, on bool) error { return e.alarm(ctx, on) }
	e.Scene.Leader = e.leader
	return e, nil
}

// leader asks the members which of them leads.
func (e *Environment) leader(ctx context.Context) (int, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.servers[0].Addr()}, DialTimeout: patience})
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for i, m := range e.servers {
		status, err := c.Status(ctx, m.Addr())
		if err != nil {
			return 0, err
		}
		if status.Leader == status.Header.MemberId {
			return i, nil
		}
	}
	return 0, errors.New("no member leads")
}

// alarm raises or ends the alarm of a full database on the first member, after
// which the cluster refuses everything that needs space.
func (e *Environment) alarm(ctx context.Context, on bool) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.servers[0].Addr()}, DialTimeout: patience})
	if err != nil {
		return err
	}
	defer c.Close()
	list, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	action := pb.AlarmRequest_DEACTIVATE
	if on {
		action = pb.AlarmRequest_ACTIVATE
	}
	_, err = pb.NewMaintenanceClient(c.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: action, MemberID: list.Members[0].ID, Alarm: pb.AlarmType_NOSPACE,
	})
	return err
}
