package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
)

// The constant ahead is the time by which the promoted replica's clock is ahead. Most leases have
// less time left than that.
const ahead = 3 * time.Second

// failovers make the replica the master without losing writes. Undo makes the first server master.
var failovers = []servers.Operation{
	sqlFailover("failover", "the replica takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget),
	sqlFailover("failover-ahead", "the replica, whose clock is 3 s ahead, takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget, claim.ClockForward, claim.ClockBack),
	// If a reply shows that a connection leads to a replica, the host closes the connection.
	sqlFailover("repoint", "the replica takes over, in order, and new connections of hosts lead to it; those that there are stay", (*inject.Proxy).Lead),
}

func sqlFailover(name, does string, by inject.Leading, makes ...claim.Condition) servers.Operation {
	o := servers.Operation{
		Name: name, Does: does, Settings: []string{servers.WithReplica}, Lasts: servers.UntilLost, Stops: true, StopsFor: time.Second, Recovers: time.Second,
		Makes: append(makes, claim.FailedOver),
		Do:    servers.On(func(ctx context.Context, s *store, _ int) error { return s.failOver(ctx, 0, by) }),
		Undo:  servers.On(func(ctx context.Context, s *store, _ int) error { return s.failOver(ctx, 1, by) }),
	}
	if len(makes) > 0 {
		o.Do = servers.InTurn(clockAhead, o.Do)
	}
	return o
}

func clockAhead(_ context.Context, e *servers.Environment, _ int) error {
	return e.ShiftClock(1, ahead)
}

func (s *store) startReplica(ctx context.Context, w servers.Requirements) error {
	server, err := start(ctx, s.Environment, w)
	if err != nil {
		return err
	}
	s.AtEnd(server.Close)
	s.Replica = server
	if s.second, err = Dial(driver.Config{"address": Address(server)}); err != nil {
		return err
	}
	s.AtEnd(s.second.Close)
	for _, db := range s.both() { // forget the statements that each server ran at its start
		if err := servers.Exec(ctx, db, "RESET MASTER"); err != nil {
			return err
		}
	}
	return s.follow(ctx, 1, "slave_pos")
}

func (s *store) both() [2]*sql.DB { return [2]*sql.DB{s.Admin, s.second} }

func (s *store) addrs() [2]string { return [2]string{s.Servers[0].Addr(), s.Replica.Addr()} }

// follow makes server n (0 or 1) replicate the other server. The replication begins at the GTID
// position that the parameter from names, such as slave_pos.
func (s *store) follow(ctx context.Context, n int, from string) error {
	host, port, err := net.SplitHostPort(s.addrs()[1-n])
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(At("")[:strings.IndexByte(At(""), '@')], ":")
	return servers.Exec(ctx, s.both()[n], "SET GLOBAL read_only = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=%s",
			host, port, user, password, from), "START SLAVE")
}

// failOver makes the replica of server n the master after the replica has received all writes. It
// then leads the hosts to the new master, and makes server n the replica.
func (s *store) failOver(ctx context.Context, n int, by inject.Leading) error {
	from, to := s.both()[n], s.both()[1-n]
	var at string
	var behind int
	if err := servers.Exec(ctx, from, "SET GLOBAL read_only = ON"); err != nil {
		return err
	}
	if err := from.QueryRowContext(ctx, "SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
		return err
	}
	if err := to.QueryRowContext(ctx, "SELECT MASTER_GTID_WAIT(?, ?)", at, servers.Timeout.Seconds()).Scan(&behind); err != nil {
		return err
	}
	if behind != 0 {
		return fmt.Errorf("the replica has not received transaction %s after %v", at, servers.Timeout)
	}
	err := servers.Exec(ctx, to, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	return errors.Join(err, s.Lead(0, by, s.addrs()[1-n]), s.follow(ctx, n, "current_pos"))
}

func (s *store) follows(ctx context.Context) error {
	var name, is string
	err := s.second.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Slave_running'").Scan(&name, &is)
	if err == nil && is != "ON" {
		err = errors.New("its replica does not follow")
	}
	return err
}
