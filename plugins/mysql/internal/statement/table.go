package statement

// Create creates the table. The name column is binary, because utf8mb4 collations may count
// different names as equal. This column is the only key, because upserts of rows with a second
// unique key would deadlock each other.
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

// unused is the condition that a row has been free for a day, and that the time in its last token
// is over a day ago. If such a row has a waiter in its queue, the waiter is dead, because a living
// one would have taken the lock. Deleting the row is safe unless the clock goes back by more than a
// day, because a new row's first token is the clock's time. If a token was granted while the clock
// was ahead, it may lie in the future, so the condition includes the token.
const (
	unused = "expires_at<" + dayAgo + " AND barred_since<" + dayAgo +
		" AND token<TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," + dayAgo + ")"
	dayAgo = Now + "-INTERVAL 1 DAY"
)

// Unused reads up to limit rows whose names follow the name in after, and says which are unused.
func Unused(table, after string, limit int) string {
	var t text
	return t.add("SELECT name,", unused, " FROM ", table, " WHERE name>").bytes(after).add(" ORDER BY name LIMIT ").uint(uint64(limit)).String()
}

// Purge deletes the named rows that are still unused.
func Purge(table string, names []string) string {
	var t text
	return t.add("DELETE old FROM ", table, " old", byKey, " WHERE ", unused, " AND name IN(").list(names).add(")").String()
}
