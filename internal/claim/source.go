package claim

// Source is the number of a source in docs/safety.md.
type Source int

// sources are in the order of their numbers, from 1.
var sources = []string{
	"C. Gray, D. Cheriton: Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency. SOSP 1989.",
	"L. Lamport: Time, Clocks, and the Ordering of Events in a Distributed System. CACM 21(7), 1978.",
	"M. Burrows: The Chubby Lock Service for Loosely-Coupled Distributed Systems. OSDI 2006, section 2.4.",
	"M. Kleppmann: How to do distributed locking. 2016, martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html",
	"S. Sanfilippo: Is Redlock safe? 2016, antirez.com/news/101",
	"Redis manual, Distributed Locks with Redis: redis.io/docs/latest/develop/clients/patterns/distributed-locks/",
	"M. Herlihy, J. Wing: Linearizability: A Correctness Condition for Concurrent Objects. TOPLAS 12(3), 1990. The order is searched for by github.com/anishathalye/porcupine.",
	"Redis manual, Persistence: redis.io/docs/latest/operate/oss_and_stack/management/persistence/",
	"Redis manual, Replication: redis.io/docs/latest/operate/oss_and_stack/management/replication/",
	"Redis manual, WAIT: redis.io/docs/latest/commands/wait/",
	"Redis manual, EXPIRE: redis.io/docs/latest/commands/expire/",
	"MySQL manual, Server System Variables, `read_only`: dev.mysql.com/doc/refman/8.4/en/server-system-variables.html",
	"etcd documentation, Maintenance, Space quota: etcd.io/docs/v3.6/op-guide/maintenance/",
	"etcd issues 12528 and 15247: github.com/etcd-io/etcd/issues",
	"etcd documentation, Disaster recovery: etcd.io/docs/v3.6/op-guide/recovery/",
	"etcd documentation, Configuration options, `--unsafe-no-fsync`: etcd.io/docs/v3.6/op-guide/configuration/",
	"Redis manual, Key eviction: redis.io/docs/latest/develop/reference/eviction/",
	"Redis manual, Cluster specification: redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/",
	"MySQL manual, Replication: dev.mysql.com/doc/refman/8.4/en/replication.html",
	"MySQL manual, InnoDB Startup Options and System Variables, `innodb_flush_log_at_trx_commit`: dev.mysql.com/doc/refman/8.4/en/innodb-parameters.html",
	"MySQL manual, Group Replication Limitations: dev.mysql.com/doc/refman/8.4/en/group-replication-limitations.html",
	"MySQL manual, Date and Time Functions, `UTC_TIMESTAMP`: dev.mysql.com/doc/refman/8.4/en/date-and-time-functions.html",
	"lockbench, docs/operations.md, When something is wrong",
	"lockbench, the package documentation of each backend: `go doc ./plugins/NAME`",
	"Jepsen, nemeses: jepsen.io and github.com/jepsen-io/jepsen",
	"etcd, robustness tests: github.com/etcd-io/etcd/tree/main/tests/robustness",
}

// String is the source as docs/safety.md has it; "" for one that is not there.
func (s Source) String() string {
	if s < 1 || int(s) > len(sources) {
		return ""
	}
	return sources[s-1]
}
