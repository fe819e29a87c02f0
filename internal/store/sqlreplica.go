package store

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
	"github.com/lockbench/lockbench/internal/env"
	"github.com/lockbench/lockbench/internal/inject"
)

// ahead is by how much the clock of a replica is ahead that is promoted: by more
// than what is left of most leases.
const ahead = 3 * time.Second

// sqlFailovers let the replica take over, in order, and the server later again.
var sqlFailovers = []Operation{
	sqlFailover("failover", "the replica takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget),
	sqlFailover("failover-ahead", "the replica, whose clock is 3 s ahead, takes over, in order, and hosts are led to it", (*inject.Proxy).Retarget, claim.ClockForward, claim.ClockBack),
	// A host leaves a connection that leads to a replica as soon as it is told so.
	sqlFailover("repoint", "the replica takes over, in order, and new connections of hosts lead to it; those that there are stay", (*inject.Proxy).Lead),
}

func sqlFailover(name, does string, by inject.Leading, makes ...claim.Condition) Operation {
	o := Operation{
		Name: name, Does: does, Settings: []string{WithReplica}, Lasts: untilLost, Stops: true, StopsFor: time.Second, Recovers: time.Second,
		Makes: append(makes, claim.FailedOver),
		Do:    on(func(ctx context.Context, s *sqlStore, _ int) error { return s.failOver(ctx, 0, by) }),
		Undo:  on(func(ctx context.Context, s *sqlStore, _ int) error { return s.failOver(ctx, 1, by) }),
	}
	if len(makes) > 0 {
		o.Do = inTurn(clockAhead, o.Do)
	}
	return o
}

// clockAhead moves the clock of the replica.
func clockAhead(_ context.Context, e *Environment, _ int) error {
	if len(e.Setup.Clocks) < 2 {
		return errors.New("the servers were started without clocks that can be moved")
	}
	return e.ShiftClock(1, ahead)
}

// startSQLReplica starts a replica of the server.
func (s *sqlStore) startSQLReplica(ctx context.Context, w Requirements) error {
	server, err := s.launchSQLServer(ctx, w)
	if err != nil {
		return err
	}
	s.servers = append(s.servers, server)
	if s.second, err = DialSQL(driver.Config{"address": env.MariaDBAddress(server)}); err != nil {
		return err
	}
	s.end = append(s.end, s.second.Close)
	for _, db := range []*sql.DB{s.admin, s.second} { // what each has begun with
		if err := execAll(ctx, db, "RESET MASTER"); err != nil {
			return err
		}
	}
	return s.follow(ctx, 1, "slave_pos")
}

// both are the servers' databases.
func (s *sqlStore) both() [2]*sql.DB { return [2]*sql.DB{s.admin, s.second} }

// follow makes server n the replica of the other one.
func (s *sqlStore) follow(ctx context.Context, n int, from string) error {
	host, port, err := net.SplitHostPort(s.servers[1-n].Addr())
	if err != nil {
		return err
	}
	user, password, _ := strings.Cut(env.MariaDBAt("")[:strings.IndexByte(env.MariaDBAt(""), '@')], ":")
	return execAll(ctx, s.both()[n], "SET GLOBAL read_only = ON",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=%s",
			host, port, user, password, from), "START SLAVE")
}

// failOver swaps the roles of server n, which leads, and the other one, with
// nothing lost.
func (s *sqlStore) failOver(ctx context.Context, n int, by inject.Leading) error {
	from, to := s.both()[n], s.both()[1-n]
	var at string
	var behind int
	if err := execAll(ctx, from, "SET GLOBAL read_only = ON"); err != nil {
		return err
	}
	if err := from.QueryRowContext(ctx, "SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
		return err
	}
	if err := to.QueryRowContext(ctx, "SELECT MASTER_GTID_WAIT(?, ?)", at, timeout.Seconds()).Scan(&behind); err != nil || behind != 0 {
		return fmt.Errorf("the replica has not received %s: %d, %w", at, behind, err)
	}
	err := execAll(ctx, to, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	return errors.Join(err, s.lead(0, by, s.servers[1-n].Addr()), s.follow(ctx, n, "current_pos"))
}

// follows returns nil when the replica does.
func (s *sqlStore) follows(ctx context.Context) error {
	var name, is string
	err := s.second.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Slave_running'").Scan(&name, &is)
	if err == nil && is != "ON" {
		err = errors.New("its replica does not follow")
	}
	return err
}
