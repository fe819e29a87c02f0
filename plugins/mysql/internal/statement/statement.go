// Package statement has the statements on the table of locks, and reads the rows
// that they return.
package statement

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// Statements are built here, not by the driver's placeholders: text from
// outside goes in as hexadecimal, which no sql_mode or character set can
// misread, and a statement for many rows is written in one pass. Numbers and
// owners (checked to be plain ASCII) go in as they are.

// Now is the server's clock. It stands still within a statement, and ignores
// the session's time zone, unlike NOW().
const Now = "UTC_TIMESTAMP(6)"

// micros is the server's clock as a token: microseconds since 1970. A token
// never being below it lets rows be purged, and tables be lost.
const micros = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," + Now + ")"

// A queue is a text of entries ",owner.wakeid", in the order of arrival; tombstones
// are ",owner," with one comma between two owners. Both are kept in the row
// that they are about, so that its row lock makes every step on it atomic, and
// no statement ever locks more than the rows of the names it is for.
const (
	// Free: a free row has no owner, and its expires_at says since when it is free. A
	// lease that was not released ends there too.
	Free = "(owner='' OR expires_at<=" + Now + ")"
	held = "owner<>'' AND expires_at>" + Now
	// headWakeID is the wake id of the first in the queue, if there is one.
	headWakeID = "CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(SUBSTRING(queue,2),',',1),'.',-1) AS UNSIGNED)"
	// replyWakeID sends that number back in the reply to an UPDATE, 0 when nobody
	// waits, as the "last insert id". The value of the expression is always 1.
	replyWakeID = "IF(LAST_INSERT_ID(IF(queue='',0," + headWakeID + "))>=0,1,1)"
	// replyAny sends back 1 if somebody waits for one of many.
	replyAny = "IF(queue='',1,IF(LAST_INSERT_ID(1)=1,1,1))"
)

// tombstoneFor is how long a withdrawn owner is refused at least: tombstones are
// moved on to a second column after that, which is cleared when they are moved next.
const tombstoneFor = "INTERVAL 1 MINUTE"

// byKey stands after the table of a statement that locks rows of several names.
// An optimizer that finds them to be most of the table reads all of it, and then
// waits for rows that the statement is not about (seen with MariaDB 11.8, whose
// innodb_snapshot_isolation takes away that READ COMMITTED passes them over).
const byKey = " FORCE INDEX(PRIMARY)"

// Operation is one operation on a row.
type Operation struct {
	driver.Request
	Nonce     uint64 // of an acquire: distinguishes its grant from another one of the owner
	Again     bool   // an earlier statement may have done it without a reply
	Woken     bool   // of an acquire: its owner was in the queue, and was woken
	Tombstone bool   // of a withdrawal: the owner may still ask
}

// Names are those of ops.
func Names(ops []Operation) []string {
	all := make([]string, len(ops))
	for i, a := range ops {
		all[i] = a.Name
	}
	return all
}

// NoWakeID is in the queue for a waiter that polls.
const NoWakeID = 1

// text builds one statement.
type text struct{ strings.Builder }

func (t *text) add(parts ...string) *text {
	for _, p := range parts {
		t.WriteString(p)
	}
	return t
}

// bytes adds a binary string.
func (t *text) bytes(b string) *text {
	t.WriteString("x'")
	t.Grow(2*len(b) + 1)
	enc := hex.NewEncoder(&t.Builder)
	_, _ = enc.Write([]byte(b)) // a Builder never fails
	t.WriteByte('\'')
	return t
}

// blob adds a binary string that may be NULL.
func (t *text) blob(b []byte) *text {
	if b == nil {
		return t.add("NULL")
	}
	return t.bytes(string(b))
}

// list adds binary strings with commas between them.
func (t *text) list(all []string) *text {
	for i, b := range all {
		if i > 0 {
			t.add(",")
		}
		t.bytes(b)
	}
	return t
}

func (t *text) uint(n uint64) *text {
	return t.add(strconv.FormatUint(n, 10))
}

// later adds the server's time plus d.
func (t *text) later(d time.Duration) *text {
	return t.add(Now, "+INTERVAL ").uint(uint64(d.Microseconds())).add(" MICROSECOND")
}

// Plain reports whether an owner may stand in a statement as it is.
func Plain(owner string) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return owner != "" && len(owner) <= 64 && strings.Trim(owner, alphabet) == ""
}

// reservation is how long a free lock is reserved for the first in the queue, in
// microseconds: two seconds, or half of the last lease's TTL if that is less.
// The others look that often whether it is over, so that a host that is lost
// while it is the first delays the next grant by no more than the TTL.
const reservation = "LEAST(ttl_us DIV 2,2000000)"

// skew is by how much a row may have been freed after the statement that reads it
// began: its clock stands still while it waits for the row, and a release comes
// before it. A row freed later than that is one whose clock was turned back, and
// nobody's reservation. [soon] is the same for a statement.
const (
	skew = time.Second
	soon = Now + "+INTERVAL 1 SECOND"
)

// stateColumns are what [row] is read from.
const stateColumns = "name,attempt,freed_by,owner,token,label,TIMESTAMPDIFF(MICROSECOND," + Now + ",expires_at),ttl_us,queue," +
	"barred<>'' OR barred_old<>''"

// lease adds the condition that r's owner and token hold its name.
func (t *text) lease(r driver.Request) *text {
	return t.add("name=").bytes(r.Name).add(" AND owner='", r.Owner, "' AND token=").uint(r.Token).add(" AND expires_at>", Now)
}

// leases adds that condition for many requests of different names.
func (t *text) leases(ops []Operation) *text {
	if len(ops) == 1 {
		return t.lease(ops[0].Request)
	}
	t.add("name IN(").list(Names(ops)) // by which alone the rows are found by their key
	t.add(")AND(name,owner,token)IN(")
	for i, a := range ops {
		if i > 0 {
			t.add(",")
		}
		t.add("(").bytes(a.Name).add(",'", a.Owner, "',").uint(a.Token).add(")")
	}
	return t.add(")AND expires_at>", Now)
}

// Renew renews leases that have one TTL in common.
func Renew(table string, ops []Operation) string {
	var t text
	return t.add("UPDATE ", table, byKey, " SET expires_at=").later(ops[0].TTL).add(",ttl_us=").uint(uint64(ops[0].TTL.Microseconds())).add(" WHERE ").leases(ops).String()
}

// Release releases leases and leaves nonce in their rows. For a lock that is
// waited for it replies the wake id of the first, else only that somebody waits.
func Release(table string, nonce uint64, ops []Operation, contended bool) string {
	reply := replyAny
	if contended {
		reply = replyWakeID
	}
	var t text
	t.add("UPDATE ", table, byKey, " SET freed_by=").uint(nonce)
	return t.add("*", reply, ",expires_at=", Now, ",label='',value=NULL,owner='' WHERE ").leases(ops).String()
}

// ReleaseAndNotify is Release for a lock that is waited for and a server that knows
// blocks of statements, MariaDB: it wakes the first waiter too. It replies how
// many leases it found, and the wake id if nobody could be woken by it.
//
// The waiter is woken before the commit, so that it is on its way while the
// commit is written to disk. Its own statement waits for the row lock until then.
func ReleaseAndNotify(table string, nonce uint64, a Operation) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE n,wake_id BIGINT UNSIGNED DEFAULT 0;START TRANSACTION;")
	t.add(Release(table, nonce, []Operation{a}, true), ";SET n=ROW_COUNT();SET wake_id=IF(n>0,LAST_INSERT_ID(),0);")
	t.add("IF wake_id>").uint(NoWakeID).add(" THEN BEGIN DECLARE EXIT HANDLER FOR ").uint(conn.ErNoSuchThread).add(",").uint(conn.ErKillDenied)
	t.add(" BEGIN END;KILL QUERY IS_USED_LOCK(CONCAT('", conn.WakePrefix, "',LOWER(CONV(wake_id,10,36))));SET wake_id=0;END;END IF;")
	return t.add("COMMIT;SELECT n,wake_id;END").String()
}

// Shorten ends a lease after keep at the latest. Waiters are woken, for they
// know of the old end only.
//
// Note: MySQL 9 takes LEAST of two times for a text, and loses the lease.
func Shorten(table string, r driver.Request) string {
	var t text
	t.add("UPDATE ", table, " SET freed_by=", replyWakeID, ",expires_at=IF(expires_at<").later(r.Keep)
	return t.add(",expires_at,").later(r.Keep).add(") WHERE ").lease(r).String()
}

// Withdraw undoes what owners did to names, and puts tombstones for those that may
// still ask. A row is made if there is none, because the owner's own request may be on
// its way to making one. It replies the wake id of the next if it leaves a lock
// free, or with many only that somebody waits.
//
// What it needs of an owner it carries in columns: the owner in label, and in
// attempt whether to put a tombstone.
func Withdraw(table string, ops []Operation) string {
	const (
		tombstone = "VALUES(attempt)=1"
		stale     = tombstone + " AND barred_since NOT BETWEEN " + Now + "-" + tombstoneFor + " AND " + Now
		mine      = "owner=VALUES(label)"
		position  = "LOCATE(CONCAT(',',VALUES(label),'.'),queue)"
	)
	reply := replyWakeID
	if len(ops) > 1 {
		reply = replyAny
	}
	var t text
	t.add("INSERT INTO ", table, "(name,expires_at,label,barred,barred_since,attempt)VALUES")
	for i, a := range ops {
		if i > 0 {
			t.add(",")
		}
		t.add("(").bytes(a.Name).add(",", Now, ",'", a.Owner, "',',", a.Owner, ",',", Now, ",")
		if a.Tombstone {
			t.add("1)")
		} else {
			t.add("0)")
		}
	}
	t.add(" ON DUPLICATE KEY UPDATE barred_old=IF(", stale, ",barred,barred_old),")
	t.add("barred=IF(", tombstone, ",CONCAT(IF(barred='' OR ", stale, ",',',barred),VALUES(label),','),barred),")
	t.add("barred_since=IF(", stale, ",", Now, ",barred_since),")
	t.add("expires_at=IF(", mine, " OR ", position, "=1 AND ", Free, ",", Now, ",expires_at),")
	t.add("queue=IF(", position, "=0,queue,CONCAT(LEFT(queue,", position, "-1),SUBSTRING(queue,LOCATE(',',queue,", position, "+1)))),")
	t.add("label=IF(", mine, ",'',label),value=IF(", mine, ",NULL,value),owner=IF(", mine, ",'',owner),")
	return t.add("freed_by=IF(", Free, ",", reply, ",freed_by)").String()
}

// without is the queue with entry instead of owner's, which is there.
func without(owner, entry string) string {
	position := "LOCATE('," + owner + ".',queue)"
	return "CONCAT(LEFT(queue," + position + "-1),'" + entry + "',SUBSTRING(queue,LOCATE(',',queue," + position + "+1)))"
}

func noTombstone(owner string) string {
	return "LOCATE('," + owner + ",',barred)=0 AND LOCATE('," + owner + ",',barred_old)=0"
}

// Enter enters owner into the queue with a wake id, also while the lock is free:
// of two hosts that take it for moments the one that asks less often would find
// it free whenever it comes to enter, and held whenever it asks.
func Enter(table string, r driver.Request, wakeID uint64) string {
	entry := "," + r.Owner + "." + strconv.FormatUint(wakeID, 10)
	var t text
	t.add("UPDATE ", table, " SET queue=IF(LOCATE(',", r.Owner, ".',queue)=0,CONCAT(queue,'", entry, "'),", without(r.Owner, entry), ")")
	return t.add(" WHERE name=").bytes(r.Name).add(" AND ", noTombstone(r.Owner)).String()
}

// Sleep sleeps until it is time for r's owner to ask. A notification ends it early.
//
// The row is read in the statement that sleeps. A release that comes before
// that is seen by it, and one that comes later finds the owner in the queue
// and interrupts it: nothing is missed between the two.
func Sleep(table string, r driver.Request, most time.Duration) string {
	var t text
	t.add("SELECT SLEEP(").pause(r, most).add("/1000000) AS slept,", noTombstone(r.Owner), " FROM ", table, " WHERE name=")
	return t.bytes(r.Name).String()
}

// EnterAndSleep enters the queue like [Enter], and sleeps like [Sleep], by waiting
// for the lock of that name: one block, which a notification ends wherever it is.
//
// The row is not read by the statement that sleeps, which would have the
// table's definition locked for so long: an ALTER TABLE waits for that, and
// everybody else behind the ALTER TABLE.
//
// Note: it must be read by a SET. A KILL QUERY that comes at the end of a
// statement is forgotten with it, also inside a block, but a SET counts as no
// statement. With SELECT ... INTO a notification was lost in 20 handoffs (10.11).
func EnterAndSleep(table, lock string, r driver.Request, wakeID uint64, most time.Duration) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE pause_us BIGINT;", Enter(table, r, wakeID))
	t.add(";SET pause_us=(SELECT IF(", noTombstone(r.Owner), ",").pause(r, most).add(",-1) FROM ", table, " WHERE name=").bytes(r.Name)
	t.add(");SELECT GET_LOCK('", lock, "',GREATEST(0,COALESCE(pause_us,0))/1000000) AS slept,COALESCE(pause_us,0)>=0;END")
	return t.String()
}

// pause is for how many microseconds r's owner has to wait before it asks: not
// at all when it is its turn, until the lease ends for the first in the queue,
// and for the others until the first may have let its reservation pass, each a
// little later than the one before it.
func (t *text) pause(r driver.Request, most time.Duration) *text {
	position := "LOCATE('," + r.Owner + ".',queue)"
	ahead := "LEFT(queue," + position + "-1)"
	left := "TIMESTAMPDIFF(MICROSECOND," + Now + ",expires_at)"
	t.add("GREATEST(0,LEAST(").uint(uint64(most.Microseconds()))
	t.add(",IF(", position, "=0 OR owner='' AND expires_at>", soon, ",0,")
	t.add("IF(", position, "=1,IF(", Free, ",0,", left, "+1000),")
	return t.add("LEAST(0,", left, ")+", reservation, "+1000+20000*(LENGTH(", ahead, ")-LENGTH(REPLACE(", ahead, ",',','')))))))")
}

// Inspect reads rows of the given names.
func Inspect(table string, names ...string) string {
	var t text
	return t.add("SELECT ", stateColumns, ",value FROM ", table, " WHERE name IN(").list(names).add(")").String()
}

// List reads the held rows whose names begin with prefix and come after
// the name after, at most limit of them, in the order of their names.
func List(table, prefix, after string, limit int) string {
	var t text
	t.add("SELECT ", stateColumns, ",value FROM ", table, " WHERE ", held)
	t.add(" AND name>=").bytes(prefix).add(" AND LEFT(name,").uint(uint64(len(prefix))).add(")=").bytes(prefix)
	t.add(" AND name>").bytes(after)
	return t.add(" ORDER BY name LIMIT ").uint(uint64(limit)).String()
}

// Break ends the lease with r's token, whoever its owner is.
func Break(table string, r driver.Request) string {
	var t text
	t.add("UPDATE ", table, " SET freed_by=", replyWakeID, ",expires_at=", Now, ",label='',value=NULL,owner='' WHERE name=").bytes(r.Name)
	return t.add(" AND token=").uint(r.Token).add(" AND ", held).String()
}

// Proclaim publishes a value.
func Proclaim(table string, r driver.Request) string {
	var t text
	return t.add("UPDATE ", table, " SET value=").blob(r.Value).add(" WHERE ").lease(r).String()
}

// Evict takes the first in the queue out of it if wakeID is still its
// own and the lock still free, and replies the wake id of the next.
func Evict(table, name string, wakeID uint64) string {
	var t text
	t.add("UPDATE ", table, " SET queue=SUBSTRING(queue,LOCATE(',',queue,2)),expires_at=", Now, ",freed_by=", replyWakeID)
	t.add(" WHERE name=").bytes(name).add(" AND ", Free, " AND queue<>'' AND ", headWakeID, "=").uint(wakeID)
	return t.String()
}

// Locked finds rows of the given names, or those of them that are not locked.
func Locked(table string, names []string, free bool) string {
	var t text
	t.add("SELECT name FROM ", table, byKey, " WHERE name IN(").list(names).add(")")
	if free {
		t.add(" FOR UPDATE SKIP LOCKED")
	}
	return t.String()
}

// Check changes nothing: the server checks rights before it looks for
// rows.
func Check(table string) string {
	var t text
	t.add("INSERT INTO ", table, "(name,expires_at)SELECT '',", Now, " FROM ", table, " WHERE FALSE;")
	t.add("UPDATE ", table, " SET value=NULL WHERE name='' AND FALSE;DELETE FROM ", table, " WHERE name='' AND FALSE;")
	t.add("SELECT name FROM ", table, " WHERE FALSE FOR UPDATE SKIP LOCKED;")
	t.add("SELECT @@global.read_only,@@innodb_read_only,@@innodb_flush_log_at_trx_commit,@@log_bin,@@sync_binlog")
	return t.String()
}

// Withdrawn asks whether r's owner has no tombstone.
func Withdrawn(table string, r driver.Request) string {
	var t text
	return t.add("SELECT ", noTombstone(r.Owner), " FROM ", table, " WHERE name=").bytes(r.Name).String()
}
