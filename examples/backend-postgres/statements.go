package postgres

import "hash/fnv"

// statement is SQL with named arguments; see backend.try for what they are.
//
// All times are clock_timestamp(), which is now. The function called now() is
// when the transaction began, and that may have waited for a row since.
type statement string

// schema has what hosts share but for the counters of tokens.
const schema = `
CREATE SCHEMA lockbench;
CREATE TABLE lockbench.locks (
	prefix text, name bytea, -- text cannot have a NUL in it
	owner text NOT NULL DEFAULT '', label bytea, value bytea,
	token bigint NOT NULL DEFAULT 0, ends timestamptz NOT NULL DEFAULT '-infinity',
	PRIMARY KEY (prefix, name)
) WITH (fillfactor = 50); -- a renewal stays on its page and touches no index
CREATE TABLE lockbench.tombstones (
	prefix text, name bytea, owner text, until timestamptz NOT NULL,
	PRIMARY KEY (prefix, name, owner)
);
CREATE TABLE lockbench.waiters (
	prefix text, name bytea, owner text, host text NOT NULL,
	place bigint GENERATED ALWAYS AS IDENTITY, until timestamptz NOT NULL,
	PRIMARY KEY (prefix, name, owner)
);`

// counters has the last token of all names that share a number; see counterOf.
// What was made when tokens came from a sequence gets it, too, and loses the
// sequence: a host that still draws from that one is refused.
//
// Note: a sequence would give tokens a second time. It falls behind the clock that
// it began at, a standby that has missed more than 32 grants repeats them, and
// logical replication leaves it out.
const counters = `
CREATE TABLE lockbench.counters (number int PRIMARY KEY, last bigint NOT NULL) WITH (fillfactor = 50);
DROP SEQUENCE IF EXISTS lockbench.tokens;`

// counterOf is the counter of a name: always the same one, of so many that names
// seldom wait for each other's commit, and that stay when a lock is deleted.
func counterOf(prefix, name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(prefix + "\x00" + name)) // a hash never fails
	return h.Sum32() % (1 << 16)
}

// Parts of the statements.
const (
	thisName = ` prefix = @prefix AND name = @name `
	live     = ` ends > clock_timestamp() `
	// inQueue leaves out who was withdrawn while its entry was on its way: the
	// withdrawal saw no entry, and the entry no withdrawal.
	inQueue = thisName + ` AND until > clock_timestamp() AND NOT EXISTS (SELECT FROM lockbench.tombstones t
		WHERE t.prefix = waiters.prefix AND t.name = waiters.name AND t.owner = waiters.owner AND t.until > clock_timestamp()) `
	ahead = ` FROM lockbench.waiters WHERE ` + inQueue + ` AND owner <> @owner AND place < coalesce(
		(SELECT place FROM lockbench.waiters WHERE ` + thisName + ` AND owner = @owner), 9223372036854775807) `
	mine = thisName + ` AND owner = @owner AND token = @token AND ` + live
)

const (
	// lock makes the row of the name and locks it, whether or not it was there.
	// What has expired is emptied. An empty row is never committed: a later
	// statement of the step fills it or drops it.
	lock statement = `INSERT INTO lockbench.locks AS l (prefix, name) VALUES (@prefix, @name)
		ON CONFLICT (prefix, name) DO UPDATE SET owner = '' WHERE l.ends <= clock_timestamp()`

	// lockUnlessHeld leaves a row that is held alone, or free for a waiter whose turn
	// it is: without that whoever has released a lock would be back before the waiter
	// that was woken. A refusal writes nothing, and so waits for no disk.
	lockUnlessHeld statement = `INSERT INTO lockbench.locks AS l (prefix, name)
		SELECT @prefix::text, @name::bytea WHERE NOT EXISTS (SELECT FROM lockbench.locks WHERE ` + thisName + ` AND ` + live + `)
			AND NOT EXISTS (SELECT ` + ahead + `)
		ON CONFLICT (prefix, name) DO UPDATE SET owner = '' WHERE l.ends <= clock_timestamp()`

	// grant mints the token while the row is locked: a number drawn before that could
	// be written last, behind a higher one. It is above the last one of its counter,
	// and never below the server's clock in microseconds, which makes up for what a
	// server has lost, or a standby never had, of the counter. The counter in turn
	// makes up for a clock that is turned back.
	grant statement = `WITH minted AS (
			INSERT INTO lockbench.counters AS c (number, last)
			SELECT @counter::int, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
			FROM lockbench.locks WHERE ` + thisName + ` AND owner = '' AND NOT EXISTS (` + tombstones + `)
			ON CONFLICT (number) DO UPDATE SET last = greatest(c.last + 1, excluded.last) RETURNING last)
		UPDATE lockbench.locks SET owner = @owner, label = @label, value = @value,
			token = minted.last, ends = clock_timestamp() + @ttl::bigint * interval '1 microsecond'
		FROM minted WHERE ` + thisName + ` AND owner = '' RETURNING token`

	tombstones  statement = `SELECT FROM lockbench.tombstones WHERE ` + thisName + ` AND owner = @owner AND until > clock_timestamp()`
	isWithdrawn statement = `SELECT EXISTS (` + tombstones + `)`

	// leaveTombstone refuses an owner for longer than anything of it can be on its way.
	leaveTombstone statement = `INSERT INTO lockbench.tombstones (prefix, name, owner, until)
		VALUES (@prefix, @name, @owner, clock_timestamp() + interval '90 seconds')
		ON CONFLICT (prefix, name, owner) DO UPDATE SET until = excluded.until`

	dropEmpty statement = `DELETE FROM lockbench.locks WHERE ` + thisName + ` AND owner = ''`
	dropOwned statement = `DELETE FROM lockbench.locks WHERE ` + thisName + ` AND owner = @owner`

	renew      statement = `UPDATE lockbench.locks SET ends = clock_timestamp() + @ttl::bigint * interval '1 microsecond' WHERE ` + mine + ` RETURNING true`
	proclaim   statement = `UPDATE lockbench.locks SET value = @value WHERE ` + mine + ` RETURNING true`
	shorten    statement = `UPDATE lockbench.locks SET ends = least(ends, clock_timestamp() + @keep::bigint * interval '1 microsecond') WHERE ` + mine + ` RETURNING true`
	release    statement = `DELETE FROM lockbench.locks WHERE ` + mine + ` RETURNING true`
	breakGrant statement = `DELETE FROM lockbench.locks WHERE ` + thisName + ` AND token = @token AND ` + live + ` RETURNING true`
)

const (
	held = `SELECT name, owner, label, value, token,
			greatest(1, ceil(extract(epoch FROM ends - clock_timestamp()) * 1000))::bigint,
			(SELECT count(*) FROM lockbench.waiters w WHERE w.prefix = l.prefix AND w.name = l.name AND w.until > clock_timestamp())
		FROM lockbench.locks l WHERE ` + live
	inspect statement = held + ` AND ` + thisName
	list    statement = held + ` AND prefix = @prefix AND substring(name FROM 1 FOR octet_length(@name::bytea)) = @name`
)

const (
	// awaitChange reports whether the name is held, and waits for whoever is about
	// to release it. This lock of the row stands in the way of a release and not
	// of a renewal. So a release comes before it, and the name is free, or after
	// the commit of this step, and finds the waiter: none is missed.
	awaitChange statement = `SELECT true FROM lockbench.locks WHERE ` + thisName + ` AND ` + live + ` FOR KEY SHARE`

	// enter keeps the place that the owner has. The ttl is that of the place.
	enter statement = `INSERT INTO lockbench.waiters (prefix, name, owner, host, until)
		SELECT @prefix::text, @name::bytea, @owner::text, @host::text, clock_timestamp() + @ttl::bigint * interval '1 microsecond'
		WHERE NOT EXISTS (` + tombstones + `)
		ON CONFLICT (prefix, name, owner) DO UPDATE SET host = excluded.host, until = excluded.until`

	// awaitTurn reports whether others are ahead, and keeps the first of them from
	// leaving the queue before the commit: its release finds this waiter, too.
	awaitTurn statement = `SELECT true ` + ahead + ` ORDER BY place LIMIT 1 FOR KEY SHARE`

	leave          statement = `DELETE FROM lockbench.waiters WHERE ` + thisName + ` AND owner = @owner`
	leaveIfGranted statement = leave + ` AND EXISTS (SELECT FROM lockbench.locks WHERE ` + thisName + ` AND owner = @owner)`

	// wakeNext wakes the first waiter of a name that is free, which then has two
	// seconds to come. The server sends the notice with the commit. One that nobody
	// waits for is not sent: notices have one lock for all commits of the database.
	wakeNext statement = `UPDATE lockbench.waiters SET until = least(until, clock_timestamp() + interval '2 seconds')
		WHERE ` + thisName + ` AND owner = (SELECT owner FROM lockbench.waiters WHERE ` + inQueue + ` ORDER BY place LIMIT 1)
			AND NOT EXISTS (SELECT FROM lockbench.locks WHERE ` + thisName + ` AND ` + live + `)
		RETURNING pg_notify(host, owner)`
)

const (
	serverVersion statement = `SELECT current_setting('server_version')`
	settings      statement = `SELECT 'fsync ' || current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit')`
)

// sweeps drop what nobody has released, withdrawn or waited for to the end. Rows
// that somebody has locked are left for the next time: two sweeps that waited
// for each other would be a deadlock.
var sweeps = []string{
	`DELETE FROM lockbench.locks WHERE ctid = ANY (ARRAY(SELECT ctid FROM lockbench.locks WHERE ends < clock_timestamp() - interval '10 seconds' FOR UPDATE SKIP LOCKED))`,
	`DELETE FROM lockbench.tombstones WHERE ctid = ANY (ARRAY(SELECT ctid FROM lockbench.tombstones WHERE until < clock_timestamp() FOR UPDATE SKIP LOCKED))`,
	`DELETE FROM lockbench.waiters WHERE ctid = ANY (ARRAY(SELECT ctid FROM lockbench.waiters WHERE until < clock_timestamp() FOR UPDATE SKIP LOCKED))`,
}
