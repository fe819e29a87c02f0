package statement

// Create makes the table. The name is the only key: utf8mb4 collations
// take some names for equal that are not, and upserts of rows with a second
// unique key deadlock each other.
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

// unused rows were free for a day, and their last token is as old. Who is in the
// queue of one is dead: a living waiter asks each second. Tokens are
// never below the server's clock, so a purged row is missed only when the clock is
// turned back by more than that. The token is looked at besides the end: one that
// was granted while the clock was ahead is above it for as long as it was ahead.
const (
	unused = "expires_at<" + dayAgo + " AND barred_since<" + dayAgo +
		" AND token<TIMESTAMPDIFF(MICROSECOND,'1970-01-01'," + dayAgo + ")"
	dayAgo = Now + "-INTERVAL 1 DAY"
)

// Unused reads the next rows after the name after, and whether they are unused.
func Unused(table, after string, limit int) string {
	var t text
	return t.add("SELECT name,", unused, " FROM ", table, " WHERE name>").bytes(after).add(" ORDER BY name LIMIT ").uint(uint64(limit)).String()
}

// Purge deletes those of the rows that are unused.
func Purge(table string, names []string) string {
	var t text
	return t.add("DELETE old FROM ", table, " old", byKey, " WHERE ", unused, " AND name IN(").list(names).add(")").String()
}
