package endurance_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
	"github.com/lockbench/lockbench/internal/inject"
	"github.com/lockbench/lockbench/internal/servers"
	mysqlserver "github.com/lockbench/lockbench/internal/servers/mysql"
)

// pair is a primary of MariaDB with a replica, behind one address.
type pair struct {
	proxy            *inject.Proxy
	primary, replica *node
}

// node is one server of a pair, with a connection that may do everything.
type node struct {
	*servers.Server
	db *sql.DB
}

// applicant is the account of the hosts. It may not write on a server that is
// read-only.
const applicant = "applicant"

func startPair(t *testing.T) *pair {
	t.Helper()
	start := func(id int) *node {
		s, err := mysqlserver.Start(t.Context(), &mysqlserver.Options{
			Args: []string{"--log-bin", fmt.Sprintf("--server-id=%d", id)},
			SQL: []string{
				"CREATE USER IF NOT EXISTS " + applicant + " IDENTIFIED BY 'of-the-hosts'",
				"GRANT ALL ON lockbench.* TO " + applicant,
			},
		})
		db, failed := sql.Open("mysql", mysqlserver.Address(keep(t, "mysql", s, err)))
		if failed != nil {
			t.Fatal(failed)
		}
		t.Cleanup(func() { _ = db.Close() })
		return &node{s, db}
	}
	p := &pair{primary: start(1), replica: start(2)}
	for _, n := range []*node{p.primary, p.replica} {
		n.must(t, "RESET MASTER") // what each has begun with
	}
	p.replica.follow(t, p.primary, "slave_pos")
	proxy, err := inject.NewProxy(p.primary.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	p.proxy = proxy
	return p
}

func (n *node) must(t *testing.T, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := n.db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// follow makes n the replica of another.
func (n *node) follow(t *testing.T, of *node, from string) {
	t.Helper()
	host, port, err := net.SplitHostPort(of.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n.must(t, "SET GLOBAL read_only=1",
		fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s',MASTER_PORT=%s,MASTER_USER='lockbench',MASTER_PASSWORD='lockbench-password',MASTER_CONNECT_RETRY=1,MASTER_USE_GTID=%s", host, port, from),
		"START SLAVE")
}

// config is what hosts are configured with.
func (p *pair) config() driver.Config {
	return driver.Config{"address": applicant + ":of-the-hosts@tcp(" + p.proxy.Addr() + ")/lockbench", "prefix": "endurance_"}
}

// pauseWrites has the primary be read-only for a while, as for a failover that
// is called off.
func (p *pair) pauseWrites(t *testing.T) {
	p.primary.must(t, "SET GLOBAL read_only=1")
	time.Sleep(3 * time.Second)
	p.primary.must(t, "SET GLOBAL read_only=0")
}

// promote swaps the roles of the two, with nothing lost.
func (p *pair) promote(t *testing.T) {
	t.Helper()
	var at string
	var waited int
	p.primary.must(t, "SET GLOBAL read_only=1")
	if err := p.primary.db.QueryRow("SELECT @@gtid_binlog_pos").Scan(&at); err != nil {
		t.Fatal(err)
	}
	if err := p.replica.db.QueryRow("SELECT MASTER_GTID_WAIT(?,30)", at).Scan(&waited); err != nil || waited != 0 {
		t.Fatalf("the replica is behind: %d, %v", waited, err)
	}
	p.replica.must(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only=0")
	if err := p.proxy.Retarget(p.replica.Addr()); err != nil {
		t.Fatal(err)
	}
	p.primary, p.replica = p.replica, p.primary
	p.replica.follow(t, p.primary, "current_pos")
}

// candidates are hosts that run for one election, each with a plugin of its
// own.
type candidates struct {
	t      *testing.T
	leads  chan *candidate
	wanted []*candidate
	done   sync.WaitGroup
}

type candidate struct {
	*candidates
	e   *core.Elector
	end context.CancelFunc
}

// run lets c campaign until it is ended.
func (c *candidate) run() {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.end = cancel
	c.done.Go(func() {
		err := c.e.Run(ctx, func(term *core.Term) {
			c.leads <- c
			<-term.Context().Done()
		})
		if ctx.Err() == nil {
			c.t.Errorf("a candidate gave up: %v", err)
		}
	})
}

// TestPlannedFailoverOfMariaDB: three standbys and 100 leases of 10 s live
// through a server that is read-only for 3 s, and through a replica's promotion.
// When the leader ends after it, one of the standbys leads.
func TestPlannedFailoverOfMariaDB(t *testing.T) {
	for name, fail := range map[string]func(*pair, *testing.T){"read-only": (*pair).pauseWrites, "promoted": (*pair).promote} {
		t.Run(name, func(t *testing.T) {
			p := startPair(t)
			binary := plugintest.Build(t, "../plugins/mysql/lockplugin-mysql")
			client := func() *core.Client {
				c := core.New(plugintest.Open(t, "mysql", optionsOf(binary, p.config())), &core.Options{Logger: slog.New(slog.DiscardHandler)})
				t.Cleanup(func() { _ = c.Close(context.Background()) })
				return c
			}
			holder := client()
			leases := make([]*core.Lease, 100)
			for i := range leases {
				leases[i] = acquire(t, holder, fmt.Sprint("lock ", i), 10*time.Second)
			}
			cs := &candidates{t: t, leads: make(chan *candidate, 10)}
			for range 4 {
				e, err := client().Elector("leader", &core.ElectorOptions{TTL: 10 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				c := &candidate{candidates: cs, e: e}
				c.run()
				cs.wanted = append(cs.wanted, c)
			}
			var outages, times []time.Duration
			leader := <-cs.leads
			for range count(1, 20) {
				time.Sleep(time.Second) // the others are in the queue
				began := time.Now()
				fail(p, t)
				outage := time.Since(began)
				ended := time.Now()
				leader.end()
				last := leader
				select {
				case leader = <-cs.leads:
				case <-time.After(outage + 15*time.Second):
					t.Fatal("nobody leads")
				}
				took, limit := time.Since(ended), 10*time.Second // on a machine that does other things
				if os.Getenv("LOCKBENCH_LONG") != "" {
					limit = outage + time.Second
				}
				if took > limit {
					t.Errorf("the next leader came %v after the last one had ended, the outage was %v", took, outage)
				}
				last.run()
				outages, times = append(outages, outage), append(times, took)
				for i, l := range leases {
					if !l.Valid() {
						t.Fatalf("lease %d after an outage of %v: %v", i, outage, l.Err())
					}
				}
			}
			spread(t, "outage", outages)
			spread(t, "from the leader's end to the next leader", times)
			for _, c := range cs.wanted {
				c.end()
			}
			cs.done.Wait()
		})
	}
}
