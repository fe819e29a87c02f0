// Package statement builds the SQL statements on the table of locks, and reads the returned rows.
package statement

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
	"github.com/lockbench/lockbench/plugins/mysql/internal/conn"
)

// This package builds statements without the driver's placeholders. Text from callers is written in
// hexadecimal, which the server reads alike under every sql_mode and character set. Numbers are
// written as digits. Owners were checked to be plain ASCII and need no encoding.

// Now is the server's clock. Unlike NOW(), it ignores the session's time zone.
// Within one statement its value does not change.
const Now = "UTC_TIMESTAMP(6)"

// micros is the server's clock in microseconds since 1970. A new token is never below this clock,
// so tokens rise even after a row was purged or the table was lost.
const micros = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," + Now + ")"

// A lock's queue of waiters is a text of entries, in the order of arrival. The lock's tombstones
// (withdrawn owners) are a text such as ",owner1,owner2,". Both texts are columns of the lock's
// row. So each change of a text is atomic, and a statement locks only the rows of its locks.
//
// A queue entry is ",owner.process.sign.span_us.label.value.wakeid". Label and value are in
// hexadecimal, and "-" stands for no value. The statement that grants a lock to its first waiter
// takes all data from this waiter's entry. The wake id comes last, because the previous version of
// this program expects it there.
const (
	// Free is the condition that a lock has no holder: its row has no owner, or
	// the lease of the owner has expired.
	Free = "(owner='' OR expires_at<=" + Now + ")"
	held = "owner<>'' AND expires_at>" + Now
	// head is the first entry of the queue, and headWakeID is the wake id in that entry.
	head       = "SUBSTRING_INDEX(SUBSTRING(queue,2),',',1)"
	headWakeID = "CAST(SUBSTRING_INDEX(" + head + ",'.',-1) AS UNSIGNED)"
	// replyWakeID is an expression whose value is always 1. It makes headWakeID the "last insert id"
	// in the reply to an UPDATE, or 0 if the queue is empty.
	replyWakeID = "IF(LAST_INSERT_ID(IF(queue='',0," + headWakeID + "))>=0,1,1)"
	// replyLook makes [Look] the "last insert id" if any row of the UPDATE has a waiter.
	replyLook = "IF(queue='',1,IF(LAST_INSERT_ID(2)=2,1,1))"
)

// A reply or queue entry may have one of these numbers in place of a wake id.
const (
	NoWakeID = 1 // the waiter has no wake id and polls
	Look     = 2 // a waiter exists, but was not granted the lock
)

// StoreGrant is the value of the attempt column after the store has granted the lock to a waiter,
// until that waiter first uses the grant.
const StoreGrant = 1

// SignEvery is the interval between two signs of life of a waiting process. Without signs, the
// store grants the process no locks. The server's time is divided into parts of 200 ms. A sign is a
// user lock named after the process and a part. It is usually valid in this part and the next two.
// A queue entry contains a part number as a sign, or 0 if its process already gives signs.
const SignEvery = 200 * time.Millisecond

// part is the number of the present part: the server's time divided by SignEvery.
var part = "(" + micros + " DIV " + strconv.FormatInt(SignEvery.Microseconds(), 10) + ")"

// Process describes the process of a waiter.
type Process struct {
	ID    string
	Signs bool   // its signs of life are valid; otherwise its queue entry counts as a sign
	Ahead uint64 // the number of parts by which its signs are valid longer than usual
}

// Signed is a sign of life. Its Part field is the 200 ms part in which it was given, or 0 if there
// is no sign. Ahead is the number of parts by which the sign is valid longer than usual.
type Signed struct{ Part, Ahead uint64 }

// Sign gives a sign of life for the named process. It takes a user lock for the present part and,
// if ahead is not 0, for every third part up to ahead+2 parts later. Then it ends the previous
// sign, which the parameter last describes. The reply is the present part.
func Sign(process string, ahead uint64, last Signed) string {
	var t text
	t.add("SELECT ", part)
	for i := uint64(0); i < ahead+signParts; i += signParts {
		t.add(",GET_LOCK(CONCAT('", conn.WakePrefix, process, ".',", part, "+").uint(i).add("),0)")
	}
	for i := uint64(0); last.Part > 0 && i < last.Ahead+signParts; i += signParts {
		t.add(",RELEASE_LOCK('", conn.WakePrefix, process, ".").uint(last.Part + i).add("')")
	}
	return t.String()
}

// signParts is the number of parts, of SignEvery each, for which a sign of life is usually valid.
const signParts = 3

// alive returns the condition that the first waiter's process has a valid sign of life.
func alive() string {
	lock := "IS_USED_LOCK(CONCAT('" + conn.WakePrefix + "'," + field("2") + ",'.'," + part
	return "(COALESCE(" + lock + "))," + lock + "-1))," + lock + "-2)))IS NOT NULL OR " + field("3") + ">=CONCAT(" + part + "-2))"
}

// field returns the SQL expression for one field of the queue's first entry. The first field has
// number 1.
func field(number string) string {
	return "SUBSTRING_INDEX(SUBSTRING_INDEX(" + head + ",'.'," + number + "),'.',-1)"
}

// free adds assignments that grant the lock to the first waiter in its queue. If there is no
// waiter, or the first waiter's process gives no sign of life, the assignments free the lock. In
// any case the first waiter leaves the queue. The freed_by column is set to the parameter freedBy.
// The reply is the wake id of the waiter that was granted the lock, [Look] if the first waiter gave
// no sign of life, or 0 if there was no waiter.
func (t *text) free(freedBy string) *text {
	const granted = "IF(attempt=1,"
	t.add("attempt=IF(", alive(), ",1,IF(attempt=1,0,attempt)),freed_by=", freedBy)
	t.add("*IF(LAST_INSERT_ID(", granted, headWakeID, ",IF(queue='',0,2)))>=0,1,1)")
	t.add(",token=", granted, "GREATEST(token+1,", micros, "),token),ttl_us=", granted, "CAST(", field("4"), " AS UNSIGNED),ttl_us)")
	t.add(",expires_at=", granted, Now, "+INTERVAL LEAST(ttl_us,").uint(uint64(kit.LongestSpan.Microseconds())).add(") MICROSECOND,", Now, ")")
	t.add(",label=", granted, "UNHEX(", field("5"), "),''),value=", granted, "IF(", field("6"), "='-',NULL,UNHEX(", field("6"), ")),NULL)")
	return t.add(",owner=", granted, field("1"), ",''),queue=SUBSTRING(queue,LOCATE(',',queue,2))") // empty if LOCATE returns 0
}

// GrantNext grants a free lock to the first waiter in its queue.
func GrantNext(table, name string) string {
	var t text
	t.add("UPDATE ", table, " SET ").free("freed_by")
	return t.add(" WHERE name=").bytes(name).add(" AND queue<>'' AND ", Free).String()
}

// Granted reads the grant that the store made to r's owner while the owner waited. The reply has
// the token, and the grant's end in microseconds of the server's clock.
func Granted(table string, r driver.Request) string {
	var t text
	t.add("SELECT token,TIMESTAMPDIFF(MICROSECOND,'1970-01-01',expires_at) FROM ", table, " WHERE ")
	return t.granted(r).String()
}

// Confirm turns the grant that the store made to the operation's waiting owner into a lease with
// the operation's full TTL. The reply has the token as the last insert id.
func Confirm(table string, a Operation) string {
	var t text
	t.add("UPDATE ", table, " SET token=LAST_INSERT_ID(token),attempt=").uint(a.Nonce).add(",label=").bytes(a.Label).add(",value=").blob(a.Value)
	t.add(",ttl_us=").uint(uint64(a.TTL.Microseconds())).add(",expires_at=").later(a.TTL).add(" WHERE ")
	return t.granted(a.Request).String()
}

// granted adds the condition that the store has made a grant to r's owner, who has not used it yet.
func (t *text) granted(r driver.Request) *text {
	return t.add("name=").bytes(r.Name).add(" AND owner='", r.Owner, "' AND attempt=1 AND expires_at>", Now)
}

// tombstoneFor is the shortest time for which a tombstone refuses a withdrawn owner. After that, a
// new tombstone moves the old ones to the barred_old column and drops that column's old content.
const tombstoneFor = "INTERVAL 1 MINUTE"

// byKey follows the table's name in a statement that locks several rows. Without byKey, the
// optimizer reads the whole table if it expects that the statement needs most rows of the table. In
// this case MariaDB 11.8 also waits for locked rows that the statement does not name, because its
// innodb_snapshot_isolation turns off the skipping of such rows under READ COMMITTED.
const byKey = " FORCE INDEX(PRIMARY)"

type Operation struct {
	driver.Request
	Nonce     uint64 // in acquires: a random number, different for each request of an owner
	Again     bool   // an earlier statement without a reply may have done the operation
	Tombstone bool   // in withdrawals: a request of the owner may still arrive
}

func Names(ops []Operation) []string {
	all := make([]string, len(ops))
	for i, a := range ops {
		all[i] = a.Name
	}
	return all
}

type text struct{ strings.Builder }

func (t *text) add(parts ...string) *text {
	for _, p := range parts {
		t.WriteString(p)
	}
	return t
}

func (t *text) bytes(b string) *text {
	t.WriteString("x'")
	t.Grow(2*len(b) + 1)
	enc := hex.NewEncoder(&t.Builder)
	_, _ = enc.Write([]byte(b)) // a Builder never fails
	t.WriteByte('\'')
	return t
}

func (t *text) blob(b []byte) *text {
	if b == nil {
		return t.add("NULL")
	}
	return t.bytes(string(b))
}

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

func (t *text) later(d time.Duration) *text {
	return t.add(Now, "+INTERVAL ").uint(uint64(d.Microseconds())).add(" MICROSECOND")
}

// Plain reports whether owner is safe to write into an SQL statement without encoding.
func Plain(owner string) bool {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	return owner != "" && len(owner) <= 64 && strings.Trim(owner, alphabet) == ""
}

// stateColumns are the columns that [Read] reads.
const stateColumns = "name,attempt,freed_by,owner,token,label,TIMESTAMPDIFF(MICROSECOND," + Now + ",expires_at),ttl_us,queue," +
	"barred<>'' OR barred_old<>''"

func (t *text) lease(r driver.Request) *text {
	return t.add("name=").bytes(r.Name).add(" AND owner='", r.Owner, "' AND token=").uint(r.Token).add(" AND expires_at>", Now)
}

func (t *text) leases(ops []Operation) *text {
	if len(ops) == 1 {
		return t.lease(ops[0].Request)
	}
	t.add("name IN(").list(Names(ops)) // without this list, MySQL does not find the rows by their key
	t.add(")AND(name,owner,token)IN(")
	for i, a := range ops {
		if i > 0 {
			t.add(",")
		}
		t.add("(").bytes(a.Name).add(",'", a.Owner, "',").uint(a.Token).add(")")
	}
	return t.add(")AND expires_at>", Now)
}

// Renew renews leases that all have the same TTL.
func Renew(table string, ops []Operation) string {
	var t text
	t.add("UPDATE ", table, byKey, " SET attempt=0,expires_at=").later(ops[0].TTL).add(",ttl_us=").uint(uint64(ops[0].TTL.Microseconds()))
	return t.add(" WHERE ").leases(ops).String()
}

// Release ends leases and writes the nonce into column freed_by of their rows. If contended is
// true, it grants each lock to the next waiter; see [text.free]. Otherwise it grants no lock, and
// the reply is [Look] if a lock has a waiter.
func Release(table string, nonce uint64, ops []Operation, contended bool) string {
	var t text
	t.add("UPDATE ", table, byKey, " SET ")
	if contended {
		t.free(strconv.FormatUint(nonce, 10))
	} else {
		t.add("freed_by=").uint(nonce).add("*", replyLook, ",expires_at=", Now, ",label='',value=NULL,owner=''")
	}
	return t.add(" WHERE ").leases(ops).String()
}

// ReleaseAndWake releases a contended lock like Release and wakes the next waiter, in one block of
// statements. Only MariaDB has such blocks. The reply has the number of leases that the block
// found. It also has the reply of Release, or 0 if the block woke a waiter.
//
// The block wakes the waiter after the commit, so that the grant that the waiter reads is on disk.
func ReleaseAndWake(table string, nonce uint64, a Operation) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE n,wake_id BIGINT UNSIGNED DEFAULT 0;")
	t.add(Release(table, nonce, []Operation{a}, true), ";SET n=ROW_COUNT();SET wake_id=IF(n>0,LAST_INSERT_ID(),0);")
	t.add("IF wake_id>").uint(Look).add(" THEN BEGIN DECLARE EXIT HANDLER FOR ").uint(conn.ErNoSuchThread).add(",").uint(conn.ErKillDenied)
	t.add(" BEGIN END;KILL QUERY IS_USED_LOCK(CONCAT('", conn.WakePrefix, "',LOWER(CONV(wake_id,10,36))));SET wake_id=0;END;END IF;")
	return t.add("SELECT n,wake_id;END").String()
}

// Shorten makes a lease end after r.Keep at the latest. The reply is the wake id of the first
// waiter. The caller then wakes this waiter, because waiters know only the lease's old end.
//
// Note: do not use LEAST. In MySQL 9, LEAST of two times returns a text, and the lease would be
// lost.
func Shorten(table string, r driver.Request) string {
	var t text
	t.add("UPDATE ", table, " SET freed_by=", replyWakeID, ",expires_at=IF(expires_at<").later(r.Keep)
	return t.add(",expires_at,").later(r.Keep).add(") WHERE ").lease(r).String()
}

// Withdraw removes owners from their locks and queues. If an owner's request may still arrive, the
// owner gets a tombstone in the row, so that the request is refused. If the row is missing,
// Withdraw creates the row. The reply is [Look] if a lock is free afterwards and has a waiter.
//
// In the VALUES list, the label column contains the owner, and the attempt column is 1 if the owner
// gets a tombstone.
func Withdraw(table string, ops []Operation) string {
	const (
		tombstone = "VALUES(attempt)=1"
		stale     = tombstone + " AND barred_since NOT BETWEEN " + Now + "-" + tombstoneFor + " AND " + Now
		mine      = "owner=VALUES(label)"
		position  = "LOCATE(CONCAT(',',VALUES(label),'.'),queue)"
	)
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
	t.add("expires_at=IF(", mine, ",", Now, ",expires_at),")
	t.add("queue=IF(", position, "=0,queue,CONCAT(LEFT(queue,", position, "-1),SUBSTRING(queue,LOCATE(',',queue,", position, "+1)))),")
	t.add("label=IF(", mine, ",'',label),value=IF(", mine, ",NULL,value),owner=IF(", mine, ",'',owner),")
	return t.add("freed_by=IF(", Free, ",", replyLook, ",freed_by)").String()
}

// The function without returns an SQL expression for the queue after entry replaces owner's entry.
func without(owner, entry string) string {
	position := "LOCATE('," + owner + ".',queue)"
	return "CONCAT(LEFT(queue," + position + "-1)," + entry + ",SUBSTRING(queue,LOCATE(',',queue," + position + "+1)))"
}

func noTombstone(owner string) string {
	return "LOCATE('," + owner + ",',barred)=0 AND LOCATE('," + owner + ",',barred_old)=0"
}

// Enter puts r's owner into the queue, with a wake id, unless this owner holds the lock or was
// withdrawn. The store may then grant the owner the lock, for r's TTL. Enter also works while the
// lock is free. If Enter failed then, a host might never get a lock that another host often takes
// for a short time, because the lock might be free at each Enter and held at each acquire.
func Enter(table string, p Process, r driver.Request, wakeID uint64) string {
	value := "-"
	if r.Value != nil && Fits(r) {
		value = hex.EncodeToString(r.Value)
	}
	sign := "0"
	if !p.Signs {
		sign = "'," + part + "+" + strconv.FormatUint(p.Ahead, 10) + ",'"
	}
	entry := "'" + strings.Join([]string{"," + r.Owner, p.ID, sign, strconv.FormatInt(r.TTL.Microseconds(), 10), hex.EncodeToString([]byte(r.Label)), value,
		strconv.FormatUint(wakeID, 10)}, ".") + "'"
	var t text
	t.add("UPDATE ", table, " SET queue=IF(LOCATE(',", r.Owner, ".',queue)=0,CONCAT(queue,", entry, "),", without(r.Owner, entry), ")")
	return t.add(" WHERE name=").bytes(r.Name).add(" AND ", noTombstone(r.Owner), " AND NOT(owner='", r.Owner, "' AND expires_at>", Now, ")").String()
}

// Fits reports whether r's value is short enough for a queue entry. With a longer value the
// owner must ask for the lock, because a grant made from the queue entry would lack the value.
func Fits(r driver.Request) bool { return len(r.Value) <= 512 }

// Sleep makes the session sleep until r's owner should ask for the lock, or until a wake-up. The
// reply has the result of SLEEP, the planned sleep (-1 if the owner was withdrawn) and the server's
// time at the start, both in microseconds.
//
// One statement both reads the row and sleeps, so it misses no release. It sees an earlier release
// in the row, and a later release finds the owner in the queue and interrupts the sleep.
func Sleep(table string, r driver.Request, most time.Duration) string {
	var t text
	t.add("SELECT SLEEP(").pause(r, most).add("/1000000) AS slept,IF(", noTombstone(r.Owner), ",").pause(r, most).add(",-1),", micros, " FROM ", table)
	return t.add(" WHERE name=").bytes(r.Name).String()
}

// EnterAndSleep enters the queue like [Enter] and sleeps like [Sleep], in one block of statements.
// To sleep, it waits for the user lock named in lock, which is never free. A wake-up during the
// sleep ends only the sleep, and the block then also returns the row of [Granted]. A wake-up at any
// other time ends the whole block.
//
// The sleeping statement must not read the row, because it would keep the table's definition
// locked during the sleep. An ALTER TABLE would then wait for the sleep, and all other
// statements would wait for the ALTER TABLE.
//
// Note: a SET must read the row. MariaDB forgets a KILL QUERY (the wake-up) that comes at the end
// of a statement, also in a block, but a SET does not count as a statement. With SELECT INTO in
// place of SET, MariaDB 10.11 lost one wake-up in 20 handoffs.
func EnterAndSleep(table, lock string, p Process, r driver.Request, wakeID uint64, most time.Duration) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE pause_us BIGINT;", Enter(table, p, r, wakeID))
	t.add(";SET pause_us=(SELECT IF(", noTombstone(r.Owner), ",").pause(r, most).add(",-1) FROM ", table, " WHERE name=").bytes(r.Name)
	t.add(");SELECT GET_LOCK('", lock, "',GREATEST(0,COALESCE(pause_us,0))/1000000) AS slept,COALESCE(pause_us,0),", micros, ";")
	return t.add(Granted(table, r), ";END").String()
}

// pause adds an expression for the time, in microseconds, that r's owner waits before it asks for
// the lock. The time is 0 if the lock is free or the owner is not in the queue. Otherwise it is the
// rest of the lease plus 1 ms, or the parameter most if that is shorter.
func (t *text) pause(r driver.Request, most time.Duration) *text {
	t.add("IF(", Free, " OR LOCATE(',", r.Owner, ".',queue)=0,0,LEAST(").uint(uint64(most.Microseconds()))
	return t.add(",TIMESTAMPDIFF(MICROSECOND,", Now, ",expires_at)+1000))")
}

// Inspect reads the rows of the given names.
func Inspect(table string, names ...string) string {
	var t text
	return t.add("SELECT ", stateColumns, ",value FROM ", table, " WHERE name IN(").list(names).add(")").String()
}

// List reads the rows of held locks whose names begin with prefix and sort
// behind the name in after. It reads at most limit rows, ordered by name.
func List(table, prefix, after string, limit int) string {
	var t text
	t.add("SELECT ", stateColumns, ",value FROM ", table, " WHERE ", held)
	t.add(" AND name>=").bytes(prefix).add(" AND LEFT(name,").uint(uint64(len(prefix))).add(")=").bytes(prefix)
	t.add(" AND name>").bytes(after)
	return t.add(" ORDER BY name LIMIT ").uint(uint64(limit)).String()
}

// Break ends the lease with r's token, even if r.Owner is not its owner. Like a contended Release,
// it grants the lock to the next waiter.
func Break(table string, r driver.Request) string {
	var t text
	t.add("UPDATE ", table, " SET ").free("freed_by").add(" WHERE name=").bytes(r.Name)
	return t.add(" AND token=").uint(r.Token).add(" AND ", held).String()
}

// Proclaim publishes a value.
func Proclaim(table string, r driver.Request) string {
	var t text
	return t.add("UPDATE ", table, " SET attempt=0,value=").blob(r.Value).add(" WHERE ").lease(r).String()
}

// Locked finds the named rows that exist. If free is true, it skips rows that another client has
// locked.
func Locked(table string, names []string, free bool) string {
	var t text
	t.add("SELECT name FROM ", table, byKey, " WHERE name IN(").list(names).add(")")
	if free {
		t.add(" FOR UPDATE SKIP LOCKED")
	}
	return t.String()
}

// Check returns statements that fail if the account lacks a right that the backend needs. They
// match no row, but the server checks rights before it looks for rows.
func Check(table string) string {
	var t text
	t.add("INSERT INTO ", table, "(name,expires_at)SELECT '',", Now, " FROM ", table, " WHERE FALSE;")
	t.add("UPDATE ", table, " SET value=NULL WHERE name='' AND FALSE;DELETE FROM ", table, " WHERE name='' AND FALSE;")
	t.add("SELECT name FROM ", table, " WHERE FALSE FOR UPDATE SKIP LOCKED;")
	t.add("SELECT @@global.read_only,@@innodb_read_only,@@innodb_flush_log_at_trx_commit,@@log_bin,@@sync_binlog")
	return t.String()
}

// Withdrawn asks whether r's owner has a tombstone. The reply is 0 if so, and otherwise 1.
func Withdrawn(table string, r driver.Request) string {
	var t text
	return t.add("SELECT ", noTombstone(r.Owner), " FROM ", table, " WHERE name=").bytes(r.Name).String()
}
