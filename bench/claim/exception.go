package claim

import (
	"slices"
	"strings"
)

// Exception is a claim that a backend does not make under some conditions, by
// its documentation.
type Exception struct {
	Backend string // "" for all
	Rules   []Rule
	// All of these conditions were made, and one of Any, if it has some.
	All, Any []Condition
	// Why is one sentence or more, and begins in lower case.
	Why    string
	Source Source
}

// Exempt finds the exception from a rule under the conditions that were made:
// the one that asks for most of them. ok is false if the claim holds.
//
// The token is a rule of its own. Where two may hold a lock, a resource that
// checks tokens is safe unless Token is exempt, too.
func Exempt(backend string, rule Rule, made []Condition) (e Exception, ok bool) {
	for _, known := range Exceptions(backend) {
		if slices.Contains(known.Rules, rule) && known.met(made) && (!ok || known.asks() > e.asks()) {
			e, ok = known, true
		}
	}
	return e, ok
}

// Exceptions lists those of a backend, those of all backends among them.
func Exceptions(backend string) []Exception {
	backend = strings.ToLower(backend)
	var out []Exception
	for _, e := range exceptions {
		if e.Backend == backend || e.Backend == "" {
			out = append(out, e)
		}
	}
	return out
}

func (e Exception) met(made []Condition) bool {
	has := func(c Condition) bool { return slices.Contains(made, c) }
	for _, c := range e.All {
		if !has(c) {
			return false
		}
	}
	return len(e.Any) == 0 || slices.ContainsFunc(e.Any, has)
}

// asks is of how many conditions e makes sure.
func (e Exception) asks() int { return len(e.All) + min(1, len(e.Any)) }

var (
	// twice is what goes when a store lets somebody in while a lease is valid,
	// which its holder then loses.
	twice = []Rule{Overlap, Linear, Signal, Survives}
	// twiceAndToken is what goes when the counter of tokens is lost as well.
	twiceAndToken = append(slices.Clone(twice), Token)
	// late is what goes when nothing is granted for a while.
	late = []Rule{Standby, Woken, Granted}
)

// exceptions are all that are known and written down. Whatever is not here is
// promised to hold.
var exceptions = []Exception{
	{
		Backend: "redis", Rules: twice, All: []Condition{DataLost},
		Why:    "the lock is lost with the data, and free at once. Tokens go on above the server's clock",
		Source: 8,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{WritesLost},
		Why:    "with `appendfsync everysec` a crash takes the last second with it, locks included; without a file of its writes the server forgets everything",
		Source: 8,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{OldData},
		Why:    "a grant that is younger than what was restored is not in it",
		Source: 8,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{ReplicaPromoted},
		Why:    "replication is asynchronous: a failover can lose a grant. The next token is higher as far as the promoted server's clock is not behind",
		Source: 9,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{ReplicaPromoted, ReplicasWaited},
		Why: "WAIT makes a lost grant less likely, not impossible: another replica may be promoted than one that has confirmed. " +
			"Sentinel looks for those that have everything among replicas of one priority. While it fails over, the old master serves on, and a replica to spare confirms what it grants",
		Source: 10,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{ClockForward},
		Why:    "keys expire by the server's wall clock",
		Source: 11,
	},
	{
		Backend: "redis", Rules: append([]Rule{LeftBehind, LeftOver}, late...), All: []Condition{ClockBack},
		Why:    "keys end at a time of the server's wall clock: a lease that nobody renews or releases lasts for as much longer as the clock was set back",
		Source: 11,
	},
	{
		Backend: "redis", Rules: twice, All: []Condition{Evicting},
		Why:    "an evicted lock is a lost lock. The policy is read once a second, because it can be changed at any time: what is evicted before that, or just before it is set back, may be granted while its holder does not know",
		Source: 17,
	},
	{
		Backend: "redis", Rules: append(slices.Clone(late), Survives), All: []Condition{EvictionSeen},
		Why:    "an evicted lock is a lost lock, and nothing is granted before the policy is noeviction again, so that its holder learns of the loss first",
		Source: 17,
	},
	{
		Backend: "redis", Rules: []Rule{Token}, All: []Condition{ClockBack}, Any: []Condition{DataLost, WritesLost, OldData, ReplicaPromoted, Evicting},
		Why: "after a loss the server's clock is the floor of tokens. A replica whose clock was 500 ms behind gave, 100 ms after its promotion, " +
			"a token that was 391 ms lower than a lost one",
		Source: 24,
	},
	{
		Backend: "redis", Rules: append(slices.Clone(late), Survives), All: []Condition{NoSpareReplica},
		Why:    "nothing is granted or renewed then, until the missing replica is back",
		Source: 10,
	},
	{
		Backend: "redis", Rules: late, All: []Condition{SlotMoving},
		Why:    "its leases are renewed and released, and nothing is granted in it until the move has ended",
		Source: 18,
	},
	{
		Backend: "redlock", Rules: twice, All: []Condition{ClockForward},
		Why: "the key on a node whose clock has jumped expires, and its vote makes a second majority. " +
			"The quarantine does not help: nothing has restarted. A majority of nodes has seen the holder's token, so the next one is higher",
		Source: 4,
	},
	{
		Backend: "redlock", Rules: twice, All: []Condition{QuarantineOff}, Any: []Condition{DataLost, WritesLost, OldData},
		Why:    "a node that has lost its data votes again at once, also for a lock that it has forgotten",
		Source: 6,
	},
	{
		Backend: "redlock", Rules: twice, All: []Condition{Evicting},
		Why:    "a node that has evicted a lock votes for the next one; see redis",
		Source: 17,
	},
	{
		Backend: "redlock", Rules: append(slices.Clone(late), Survives), All: []Condition{EvictionSeen},
		Why:    "as on redis; with its marker a node has lost its vote until `max_ttl` has passed",
		Source: 17,
	},
	{
		Backend: "redlock", Rules: []Rule{Survives}, All: []Condition{Restarted},
		Why:    "a node that was restarted counts for nothing until `max_ttl` has passed, so that a majority neither grants nor renews",
		Source: 6,
	},
	{
		Backend: "redlock", Rules: append([]Rule{LeftBehind, LeftOver}, late...), All: []Condition{ClockBack},
		Why:    "the nodes' keys end at times of their wall clocks: where a majority was set back, a lease that nobody renews or releases lasts for as much longer",
		Source: 11,
	},
	{
		Backend: "redlock", Rules: []Rule{Token}, All: []Condition{Restarted, DataLost, ClockBack},
		Why:    "what a majority has lost begins again at its nodes' clocks, which must agree better than the quarantine lasts",
		Source: 24,
	},
	{
		Backend: "redlock", Rules: []Rule{Token}, All: []Condition{Unfenced},
		Why:    "there are no tokens",
		Source: 24,
	},
	{
		Backend: "mysql", Rules: twice, All: []Condition{DataLost},
		Why:    "the row is lost with the data. Tokens go on above the server's clock",
		Source: 20,
	},
	{
		Backend: "mysql", Rules: twice, All: []Condition{WritesLost},
		Why:    "a grant is on disk before it is answered only with `innodb_flush_log_at_trx_commit=1`, and `sync_binlog=1` where there is a binary log",
		Source: 20,
	},
	{
		Backend: "mysql", Rules: twice, All: []Condition{OldData},
		Why:    "a grant that is younger than what was restored is not in it",
		Source: 20,
	},
	{
		Backend: "mysql", Rules: twice, All: []Condition{ReplicaPromoted},
		Why:    "replication is asynchronous: the replica misses the last commits. The next token is higher as far as its clock is not behind",
		Source: 19,
	},
	{
		Backend: "mysql", Rules: twice, All: []Condition{ClockForward},
		Why:    "rows end by the server's UTC_TIMESTAMP",
		Source: 22,
	},
	{
		Backend: "mysql", Rules: append([]Rule{LeftBehind, LeftOver}, late...), All: []Condition{ClockBack},
		Why:    "rows end at a time of the server's UTC_TIMESTAMP: a lease that nobody renews or releases lasts for as much longer as the clock was set back",
		Source: 22,
	},
	{
		Backend: "mysql", Rules: []Rule{Token}, All: []Condition{ClockBack}, Any: []Condition{DataLost, WritesLost, OldData, ReplicaPromoted},
		Why:    "after a loss the server's clock is the floor of tokens",
		Source: 24,
	},
	{
		Backend: "mysql", Rules: []Rule{Woken}, All: []Condition{SeveralWriters},
		Why:    "waiters on other nodes are not woken: they ask each second, without order. Let all hosts use one node",
		Source: 21,
	},
	{
		Backend: "etcd", Rules: twice, All: []Condition{LeaderPaused},
		Why: "a leader that goes on (a virtual machine that was paused, a disk that hung) may revoke, by its own books, leases that were renewed at its successor. " +
			"The holder is told by its watch, in milliseconds and usually before the next grant, but that is no promise. " +
			"If it stood still for 10 s, the places of waiters go the same way, and their order is lost",
		Source: 14,
	},
	{
		Backend: "etcd", Rules: twice, All: []Condition{DataLost},
		Why:    "the key is lost with the cluster's data. The new cluster's tokens begin above the clock of the host that comes first",
		Source: 15,
	},
	{
		Backend: "etcd", Rules: twiceAndToken, All: []Condition{WritesLost},
		Why:    "a member that runs with `--unsafe-no-fsync` may forget what it has promised, and revisions, of which tokens are made, are given again",
		Source: 16,
	},
	{
		Backend: "etcd", Rules: twiceAndToken, All: []Condition{OldData},
		Why:    "an older snapshot brings back old leases and old revisions, unless it is restored with `--bump-revision`",
		Source: 15,
	},
	{
		Backend: "etcd", Rules: []Rule{Token}, All: []Condition{DataLost, ClockBack},
		Why:    "it is the clock of a host that the new cluster's tokens begin above",
		Source: 24,
	},
	{
		Backend: "memory", Rules: []Rule{Survives}, All: []Condition{PluginDied},
		Why:    "the store is in that process and dies with it. Holders are told within a second, with the cause `plugin died`, and later tokens are higher, because they begin at the clock",
		Source: 24,
	},
	{
		Rules: twice, All: []Condition{EndedByHand},
		Why:    "the holder learns of it with its next renewal, or by a watch; the next grant has a higher token",
		Source: 23,
	},
	{
		Rules: append([]Rule{Survives, Deadline}, late...), All: []Condition{HostStopped},
		Why:    "it neither renews nor answers meanwhile. After its last look at the clock nothing but the token protects what it writes",
		Source: 4,
	},
}
