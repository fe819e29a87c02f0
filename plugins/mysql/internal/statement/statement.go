// Package statement has the statements on the table of locks, and reads the rows
// that they return.
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

// A queue is a text of entries, in the order of arrival; tombstones are ",owner,"
// with one comma between two owners. Both are kept in the row that they are about,
// so that its row lock makes every step on it atomic, and no statement ever locks
// more than the rows of the names it is for.
//
// An entry is ",owner.process.sign.span_us.label.value.wakeid", label and value
// in hexadecimal, "-" for no value. A grant needs no more. The statement that
// frees a lock, or finds it free, grants it to the first waiter. The wake id
// comes last, where the release before looks for it.
const (
	// Free: a free row has no owner, and its expires_at says since when it is free. A
	// lease that was not released ends there too.
	Free = "(owner='' OR expires_at<=" + Now + ")"
	held = "owner<>'' AND expires_at>" + Now
	// head is the first entry of the queue, and headWakeID its wake id.
	head       = "SUBSTRING_INDEX(SUBSTRING(queue,2),',',1)"
	headWakeID = "CAST(SUBSTRING_INDEX(" + head + ",'.',-1) AS UNSIGNED)"
	// replyWakeID sends that number back in the reply to an UPDATE, 0 when nobody
	// waits, as the "last insert id". The value of the expression is always 1.
	replyWakeID = "IF(LAST_INSERT_ID(IF(queue='',0," + headWakeID + "))>=0,1,1)"
	// replyLook sends back [Look] if somebody waits for one of many.
	replyLook = "IF(queue='',1,IF(LAST_INSERT_ID(2)=2,1,1))"
)

// These numbers stand in place of a wake id.
const (
	NoWakeID = 1 // the waiter polls
	Look     = 2 // a waiter exists that was not granted the lock
)

// StoreGrant is in attempt while a grant made by the store itself is neither
// confirmed nor used.
const StoreGrant = 1

// SignEvery is how often a process that waits gives a sign of life: a user lock
// that is named after it and the present part of the server's time. A sign counts in its
// part and in the two after it, for two to three times SignEvery. The first sign of a
// process that has given none yet is its entry, in which the part stands: 0 in others.
const SignEvery = 200 * time.Millisecond

// part numbers the parts of the server's time in which signs are given.
var part = "(" + micros + " DIV " + strconv.FormatInt(SignEvery.Microseconds(), 10) + ")"

// Process is the process of a waiter.
type Process struct {
	ID    string
	Signs bool   // its signs of life stand; else the entry is one
	Ahead uint64 // in how many parts more than others a sign of it counts
}

// Signed is a sign of life that was given: its part, zero for none, and in how many
// parts more than others it counts.
type Signed struct{ Part, Ahead uint64 }

// Sign gives a sign of life for process that counts in ahead parts more than others,
// by locks of every third part to come, and ends the last. It replies its part.
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

// signParts is the number of parts in which a sign counts.
const signParts = 3

// alive tests whether the first in the queue has given a sign of life lately.
func alive() string {
	lock := "IS_USED_LOCK(CONCAT('" + conn.WakePrefix + "'," + field("2") + ",'.'," + part
	return "(COALESCE(" + lock + "))," + lock + "-1))," + lock + "-2)))IS NOT NULL OR " + field("3") + ">=CONCAT(" + part + "-2))"
}

// field returns the field with that number, from 1, in the first entry.
func field(number string) string {
	return "SUBSTRING_INDEX(SUBSTRING_INDEX(" + head + ",'.'," + number + "),'.',-1)"
}

// free adds assignments by which a row gets free, or is granted to the first in
// its queue if that one's process lives: the first assignment decides it, and freedBy is
// what stands in freed_by then. One whose process is silent leaves the queue too. The
// reply is the wake id of the waiter, [Look] if the first was silent, and 0 for none.
func (t *text) free(freedBy string) *text {
	const granted = "IF(attempt=1,"
	t.add("attempt=IF(", alive(), ",1,IF(attempt=1,0,attempt)),freed_by=", freedBy)
	t.add("*IF(LAST_INSERT_ID(", granted, headWakeID, ",IF(queue='',0,2)))>=0,1,1)")
	t.add(",token=", granted, "GREATEST(token+1,", micros, "),token),ttl_us=", granted, "CAST(", field("4"), " AS UNSIGNED),ttl_us)")
	t.add(",expires_at=", granted, Now, "+INTERVAL LEAST(ttl_us,").uint(uint64(kit.LongestSpan.Microseconds())).add(") MICROSECOND,", Now, ")")
	t.add(",label=", granted, "UNHEX(", field("5"), "),''),value=", granted, "IF(", field("6"), "='-',NULL,UNHEX(", field("6"), ")),NULL)")
	return t.add(",owner=", granted, field("1"), ",''),queue=SUBSTRING(queue,LOCATE(',',queue,2))") // from 0 it is empty
}

// GrantNext grants a free lock to the first in its queue.
func GrantNext(table, name string) string {
	var t text
	t.add("UPDATE ", table, " SET ").free("freed_by")
	return t.add(" WHERE name=").bytes(name).add(" AND queue<>'' AND ", Free).String()
}

// Granted reads the token of the store's own grant to r's owner, and its end in
// microseconds of the server's clock.
func Granted(table string, r driver.Request) string {
	var t text
	t.add("SELECT token,TIMESTAMPDIFF(MICROSECOND,'1970-01-01',expires_at) FROM ", table, " WHERE ")
	return t.granted(r).String()
}

// Confirm makes the store's own grant to a's owner a lease as any other. It
// replies the token as the last insert id.
func Confirm(table string, a Operation) string {
	var t text
	t.add("UPDATE ", table, " SET token=LAST_INSERT_ID(token),attempt=").uint(a.Nonce).add(",label=").bytes(a.Label).add(",value=").blob(a.Value)
	t.add(",ttl_us=").uint(uint64(a.TTL.Microseconds())).add(",expires_at=").later(a.TTL).add(" WHERE ")
	return t.granted(a.Request).String()
}

// granted adds the condition that r's owner has an unused grant of the store.
func (t *text) granted(r driver.Request) *text {
	return t.add("name=").bytes(r.Name).add(" AND owner='", r.Owner, "' AND attempt=1 AND expires_at>", Now)
}

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
	Tombstone bool   // of a withdrawal: the owner may still ask
}

// Names returns the names of ops.
func Names(ops []Operation) []string {
	all := make([]string, len(ops))
	for i, a := range ops {
		all[i] = a.Name
	}
	return all
}

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
	t.add("UPDATE ", table, byKey, " SET attempt=0,expires_at=").later(ops[0].TTL).add(",ttl_us=").uint(uint64(ops[0].TTL.Microseconds()))
	return t.add(" WHERE ").leases(ops).String()
}

// Release releases leases and leaves nonce in their rows. A lock that is waited
// for it grants to the next, see [text.free]; of others it replies [Look] if
// somebody waits.
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

// ReleaseAndWake is Release for a lock that is waited for and a server that knows
// blocks of statements, MariaDB: it wakes the waiter too. It replies how many leases
// it found, and the reply of Release if nobody could be woken by it.
//
// The waiter is woken after the commit: what it reads then is on disk.
func ReleaseAndWake(table string, nonce uint64, a Operation) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE n,wake_id BIGINT UNSIGNED DEFAULT 0;")
	t.add(Release(table, nonce, []Operation{a}, true), ";SET n=ROW_COUNT();SET wake_id=IF(n>0,LAST_INSERT_ID(),0);")
	t.add("IF wake_id>").uint(Look).add(" THEN BEGIN DECLARE EXIT HANDLER FOR ").uint(conn.ErNoSuchThread).add(",").uint(conn.ErKillDenied)
	t.add(" BEGIN END;KILL QUERY IS_USED_LOCK(CONCAT('", conn.WakePrefix, "',LOWER(CONV(wake_id,10,36))));SET wake_id=0;END;END IF;")
	return t.add("SELECT n,wake_id;END").String()
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
// its way to making one. It replies [Look] if it leaves a lock free that somebody
// waits for.
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

// without returns entry, a list of texts, without that of owner, which is in it.
func without(owner, entry string) string {
	position := "LOCATE('," + owner + ".',queue)"
	return "CONCAT(LEFT(queue," + position + "-1)," + entry + ",SUBSTRING(queue,LOCATE(',',queue," + position + "+1)))"
}

func noTombstone(owner string) string {
	return "LOCATE('," + owner + ",',barred)=0 AND LOCATE('," + owner + ",',barred_old)=0"
}

// Enter enters r's owner into the queue, with a wake id, unless the store has
// granted it the lock. The store may grant it for r's TTL. It enters also while the lock is free: of two hosts that
// take it for moments the one that asks less often would find it free whenever it
// comes to enter, and held whenever it asks.
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

// Fits reports whether the store's own grant to r's owner has all of its value. A
// longer one comes with the request of the owner, which then has to make it.
func Fits(r driver.Request) bool { return len(r.Value) <= 512 }

// Sleep sleeps until it is time for r's owner to ask. A notification ends it early.
// It replies for how many microseconds, -1 where the owner has a tombstone, and when
// it began, in microseconds of the server's clock.
//
// The row is read in the statement that sleeps. A release that comes before
// that is seen by it, and one that comes later finds the owner in the queue
// and interrupts it: nothing is missed between the two.
func Sleep(table string, r driver.Request, most time.Duration) string {
	var t text
	t.add("SELECT SLEEP(").pause(r, most).add("/1000000) AS slept,IF(", noTombstone(r.Owner), ",").pause(r, most).add(",-1),", micros, " FROM ", table)
	return t.add(" WHERE name=").bytes(r.Name).String()
}

// EnterAndSleep enters the queue like [Enter], and sleeps like [Sleep], by waiting
// for the lock of that name: one block. A notification ends the sleep alone, and
// then the block goes on and replies [Granted] too, or all of the block wherever
// else it is.
//
// The row is not read by the statement that sleeps, which would have the
// table's definition locked for so long: an ALTER TABLE waits for that, and
// everybody else behind the ALTER TABLE.
//
// Note: it must be read by a SET. A KILL QUERY that comes at the end of a
// statement is forgotten with it, also inside a block, but a SET counts as no
// statement. With SELECT ... INTO a notification was lost in 20 handoffs (10.11).
func EnterAndSleep(table, lock string, p Process, r driver.Request, wakeID uint64, most time.Duration) string {
	var t text
	t.add("BEGIN NOT ATOMIC DECLARE pause_us BIGINT;", Enter(table, p, r, wakeID))
	t.add(";SET pause_us=(SELECT IF(", noTombstone(r.Owner), ",").pause(r, most).add(",-1) FROM ", table, " WHERE name=").bytes(r.Name)
	t.add(");SELECT GET_LOCK('", lock, "',GREATEST(0,COALESCE(pause_us,0))/1000000) AS slept,COALESCE(pause_us,0),", micros, ";")
	return t.add(Granted(table, r), ";END").String()
}

// pause is for how many microseconds r's owner has to wait before it asks: not
// at all when the lock is free or its own, and at most until the lease ends.
func (t *text) pause(r driver.Request, most time.Duration) *text {
	t.add("IF(", Free, " OR LOCATE(',", r.Owner, ".',queue)=0,0,LEAST(").uint(uint64(most.Microseconds()))
	return t.add(",TIMESTAMPDIFF(MICROSECOND,", Now, ",expires_at)+1000))")
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

// Break ends the lease with r's token, whoever its owner is, and grants as
// Release does.
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
