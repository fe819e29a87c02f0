package statement

import "strconv"

// Acquire tries to take many locks at once. It takes a lock's row if the lock has no holder, the
// new owner is not withdrawn, and no other owner is first in the queue.
//
// MySQL runs assignments from left to right, and each sees the results of earlier ones. The first
// assignment decides by the old expires_at and owner whether to take the row. If so, it writes the
// request's nonce (a random number) to the attempt column. Later assignments check for that nonce.
//
// All nonces of one statement have base as their high bits. The low NonceBits bits are the
// request's number. A row was granted if its attempt column has base as high bits. For any other
// row, the reply also describes the holder, the remaining lease and the queue.
//
// The statement has two texts, because the long text would be slow for a single row. The short text
// takes only rows that have no queue, no withdrawn owners and no running lease. The long text
// handles every case.
func Acquire(table string, ops []Operation, base uint64, long, mariadb bool) string {
	var t text
	t.add("INSERT INTO ", table, "(name,owner,token,expires_at,attempt,ttl_us,label,value)VALUES")
	for i, a := range ops {
		if i > 0 {
			t.add(",")
		}
		t.add("(").bytes(a.Name).add(",'", a.Owner, "',", micros, ",").later(a.TTL).add(",").uint(a.Nonce).add(",")
		t.uint(uint64(a.TTL.Microseconds())).add(",").bytes(a.Label).add(",").blob(a.Value).add(")")
	}
	if long {
		t.add(onTakenLong)
	} else {
		t.add(onTakenShort)
	}
	reply := "name,attempt,token,IF(attempt>>" + strconv.Itoa(NonceBits) + "=" + strconv.FormatUint(base, 10) + ",NULL," + details + ")"
	if mariadb {
		return t.add(" RETURNING ", reply).String()
	}
	return t.add(";SELECT ", reply, " FROM ", table, " WHERE name IN(").list(Names(ops)).add(")").String()
}

// Take takes one lock, if its row exists and has no queue, no withdrawn owners and no running
// lease. Otherwise it changes nothing, and the caller uses [Acquire], which takes the server twice
// as long. The reply has the token as the last insert id.
func Take(table string, a Operation) string {
	var t text
	t.add("UPDATE ", table, " SET token=LAST_INSERT_ID(GREATEST(token+1,", micros, ")),attempt=").uint(a.Nonce)
	t.add(",label=").bytes(a.Label).add(",value=").blob(a.Value).add(",ttl_us=").uint(uint64(a.TTL.Microseconds()))
	t.add(",expires_at=").later(a.TTL).add(",owner='", a.Owner, "' WHERE name=").bytes(a.Name)
	return t.add(" AND expires_at<=", Now, " AND barred='' AND queue=''").String()
}

const (
	// NonceBits is the number of low bits of a nonce that hold the request's number in its statement.
	NonceBits = 16

	// details describes a refused row. It is one column, because more columns would slow the reply.
	details = "CONCAT_WS(' ',TIMESTAMPDIFF(MICROSECOND," + Now + ",expires_at),ttl_us,barred<>'',HEX(label),owner,queue)"

	onTakenShort = " ON DUPLICATE KEY UPDATE attempt=IF(expires_at<=" + Now + " AND queue='' AND barred='',VALUES(attempt),attempt)," +
		taken + ",expires_at=" + ifTaken + "VALUES(expires_at),expires_at),owner=" + ifTaken + "VALUES(owner),owner)"

	onTakenLong = " ON DUPLICATE KEY UPDATE attempt=IF(" + Free +
		" AND LOCATE(CONCAT(',',VALUES(owner),','),barred)=0 AND LOCATE(CONCAT(',',VALUES(owner),','),barred_old)=0" +
		" AND(queue='' OR LOCATE(CONCAT(',',VALUES(owner),'.'),queue)=1),VALUES(attempt),attempt)," +
		"queue=" + ifTaken + "SUBSTRING(queue,LOCATE(',',queue,2)),queue)," + // empty if LOCATE returns 0
		"barred_old=IF(barred<>'' AND barred_since<" + Now + "-INTERVAL 2 MINUTE,'',barred_old)," +
		"barred=IF(barred<>'' AND barred_since<" + Now + "-INTERVAL 2 MINUTE,'',barred)," +
		// If a lease seems to have more than its TTL left, the server's clock was turned back. Such a
		// lease is made to end within one TTL.
		"expires_at=" + ifTaken + "VALUES(expires_at)," +
		"IF(owner<>'' AND expires_at>" + Now + "+INTERVAL ttl_us MICROSECOND," + Now + "+INTERVAL ttl_us MICROSECOND,expires_at))," +
		taken + ",owner=" + ifTaken + "VALUES(owner),owner)"

	taken = "token=" + ifTaken + "GREATEST(token+1,VALUES(token)),token)," +
		"label=" + ifTaken + "VALUES(label),label)," +
		"value=" + ifTaken + "VALUES(value),value)," +
		"ttl_us=" + ifTaken + "VALUES(ttl_us),ttl_us)"
	ifTaken = "IF(attempt=VALUES(attempt),"
)
