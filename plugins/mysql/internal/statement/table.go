package statement

// Create creates the table. The name is the only key. It is binary, because
// different names may count as equal in utf8mb4 collations. Upserts of rows
// with a second unique key would deadlock each other.
func Create(table string) string {
	return "CREATE TABLE IF NOT EXISTS " + table + ` (
  name         VARBINARY(512)  NOT NULL PRIMARY KEY,
  owner        VARBINARY(64)   NOT NULL DEFAULT '' COMMENT 'empty: nobody holds it',
  token        BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of the last grant',
  expires_at   DATETIME(6)     NOT NULL COMMENT 'UTC, of a free row since when',
  attempt      BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'which request was granted',
  freed_by     BIGINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'which request released last',
  ttl_us       BIGINT          NOT NULL DEFAULT 0 COMMENT 'of the last lease',
  label        VARBINARY(256)  NOT NULL DEFAULT '' COMMENT 'who holds it, for people',
  value        MEDIUMBLOB      NULL     COMMENT 'what a leader publishes',
  queue        MEDIUMBLOB      NOT NULL DEFAULT ('') COMMENT 'who waits: ,owner.wake_id',
  barred       MEDIUMBLOB      NOT NULL DEFAULT ('') COMMENT 'tombstones: owners that have withdrawn',
  barred_old   MEDIUMBLOB      NOT NULL DEFAULT ('') COMMENT 'and earlier ones',
  barred_since DATETIME(6)     NOT NULL DEFAULT '1970-01-01'
) ENGINE=InnoDB`
}

// unused is the condition that a row has been free for a day and that its last token is a
// day old. An owner still in its queue is dead, because a living waiter would have the lock.
// New tokens are not below the server's clock, so a purged row is missed only if the clock
// is turned back by more than a day. The token is checked too, because a token granted
// while the clock was ahead may be above the clock for as long as the clock was ahead.
const (
	unused = "expires_at<" + dayAgo + " AND barred_since<" + dayAgo +
		" AND token<TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," + dayAgo + ")"
	dayAgo = Now + "-INTERVAL 1 DAY"
)

// Unused reads the next rows behind the name in after, and for each row whether it is unused.
func Unused(table, after string, limit int) string {
	var t text
	return t.add("SELECT name,", unused, " FROM ", table, " WHERE name>").bytes(after).add(" ORDER BY name LIMIT ").uint(uint64(limit)).String()
}

// Purge deletes the unused rows among names.
func Purge(table string, names []string) string {
	var t text
	return t.add("DELETE old FROM ", table, " old", byKey, " WHERE ", unused, " AND name IN(").list(names).add(")").String()
}
