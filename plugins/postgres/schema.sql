-- Each lock is a row of lockbench.locks. Only this row names the lock's holder. The row is created
-- when the lock is first requested. It outlives the leases, so it keeps the last token.
--
-- Every step is one call of a function in this file, which is one statement and one transaction.
-- Each statement inside the function sees all that was committed before that statement began (READ
-- COMMITTED). A step first locks the rows of its names, in the order of the names, so that no two
-- steps deadlock. After that, it sees in every table what earlier steps on these names have
-- committed, because a step that adds a waiter or a tombstone also locks the row. Under a stricter
-- isolation level, a step that would see less fails (40001) and is repeated.
--
-- All times come from clock_timestamp(), the present time. The function now() is not used, because
-- it returns the start time of the transaction, which may have waited for a row since that time.
--
-- The digit at the end of a function's name is the version of the function. A changed
-- function gets a new name, so that hosts of both versions can share the tables.

CREATE SCHEMA IF NOT EXISTS lockbench;

-- Texts have the collation C. The order of other collations changes with the system's
-- libraries, and an index then misses rows.

CREATE TABLE IF NOT EXISTS lockbench.locks (
	name   bytea PRIMARY KEY,                       -- PREFIX/NAME
	owner  text COLLATE "C" NOT NULL DEFAULT '',    -- empty when free
	token  bigint NOT NULL DEFAULT 0,               -- token of the last grant
	ends   timestamptz NOT NULL DEFAULT clock_timestamp(), -- end of the lease, or when the row became free
	ttl_us bigint NOT NULL DEFAULT 0,               -- TTL of the last lease
	given  boolean NOT NULL DEFAULT false,          -- granted by the store, not confirmed
	marked timestamptz NOT NULL DEFAULT '-infinity', -- until then the lock may have a waiter or a tombstone
	label  bytea,
	value  bytea
) WITH (fillfactor = 50); -- a changed row stays on its page and touches no index

CREATE TABLE IF NOT EXISTS lockbench.tombstones (
	name bytea, owner text COLLATE "C", until timestamptz NOT NULL,
	PRIMARY KEY (name, owner)
);

-- A crash of the server empties the next two tables. The crash also ends all connections, so
-- waiters enter their queues again.
CREATE UNLOGGED TABLE IF NOT EXISTS lockbench.waiters (
	name bytea, owner text COLLATE "C",
	place   bigint GENERATED ALWAYS AS IDENTITY,
	process text COLLATE "C" NOT NULL,              -- empty if it gets no notices, and polls
	until   timestamptz NOT NULL,
	span_us bigint NOT NULL,                        -- for how long the store may grant it the lock
	label   bytea,
	value   bytea,
	PRIMARY KEY (name, owner),
	UNIQUE (name, place)
) WITH (fillfactor = 50);

-- lockbench.processes has the newest sign of life of each process. The sign's number, sign_us,
-- comes from the clock of that process. The sign expires at the time in the until column.
CREATE UNLOGGED TABLE IF NOT EXISTS lockbench.processes (
	process text COLLATE "C" PRIMARY KEY, sign_us bigint NOT NULL, until timestamptz NOT NULL
) WITH (fillfactor = 50);

-- A new token is above the last token, and never below the server's clock in microseconds, so that
-- tokens also rise after rows were purged, lost or never replicated.
CREATE OR REPLACE FUNCTION lockbench.mint1(last bigint) RETURNS bigint LANGUAGE sql VOLATILE
AS $$ SELECT greatest(last + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) $$;

CREATE OR REPLACE FUNCTION lockbench.after1(us bigint) RETURNS timestamptz LANGUAGE sql VOLATILE
AS $$ SELECT clock_timestamp() + us * interval '1 microsecond' $$;

-- pass1 grants a free lock, whose row is locked, to the first waiter whose process lives. Dead
-- waiters before it lose their places. A process lives if its last sign is valid, and if its
-- listening session holds an advisory lock named after the process. So a killed process delays no
-- other. Only the signs show whether a process is frozen or its machine is lost. pass1 returns
-- true if it granted the lock, or if it reserves the lock for a first waiter that polls. If the
-- owner in asks is first, pass1 returns false, so that this owner can take the lock.
--
-- The grant lasts for the time in the waiter's entry. The commit sends the waiter a notice with the
-- newest sign of life that is committed. The waiter sent this sign before the grant, and counts its
-- deadline from the sending of the sign, so the deadline is not after the grant's end.
CREATE OR REPLACE FUNCTION lockbench.pass1(lock bytea, asks text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	w record;
	minted bigint;
BEGIN
	FOR w IN SELECT q.owner, q.process, q.span_us, q.label, q.value, p.sign_us,
			coalesce(p.until > clock_timestamp(), false)
				AND NOT pg_try_advisory_xact_lock_shared(hashtextextended(q.process, 0)) AS lives
		FROM lockbench.waiters q LEFT JOIN lockbench.processes p ON p.process = q.process
		WHERE q.name = lock AND q.until > clock_timestamp() ORDER BY q.place
	LOOP
		IF w.owner = asks THEN
			RETURN false;
		ELSIF w.process = '' THEN
			RETURN true;
		END IF;
		DELETE FROM lockbench.waiters q WHERE q.name = lock AND q.owner = w.owner;
		IF w.lives THEN
			UPDATE lockbench.locks l SET owner = w.owner, token = lockbench.mint1(l.token), ends = lockbench.after1(w.span_us),
				ttl_us = w.span_us, given = true, label = w.label, value = w.value
			WHERE l.name = lock RETURNING l.token INTO minted;
			PERFORM pg_notify(w.process, concat_ws(' ', w.owner, minted, w.sign_us, w.span_us));
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END $$;

-- take1 decides whether to grant a lock whose row is locked and marked. It returns the token, or 0
-- for a refusal.
CREATE OR REPLACE FUNCTION lockbench.take1(lock bytea, asks text, us bigint, tag bytea, val bytea) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	l record;
	minted bigint;
BEGIN
	IF EXISTS (SELECT FROM lockbench.tombstones t WHERE t.name = lock AND t.owner = asks AND t.until > clock_timestamp()) THEN
		RETURN 0;
	END IF;
	SELECT k.owner <> '' AND k.ends > clock_timestamp() AS held, k.given AND k.owner = asks AS mine INTO l
		FROM lockbench.locks k WHERE k.name = lock;
	IF l.held AND NOT l.mine OR NOT l.held AND lockbench.pass1(lock, asks) THEN
		RETURN 0;
	END IF;
	DELETE FROM lockbench.waiters q WHERE q.name = lock AND q.owner = asks;
	UPDATE lockbench.locks k SET owner = asks, token = CASE WHEN l.held THEN k.token ELSE lockbench.mint1(k.token) END,
		ends = lockbench.after1(us), ttl_us = us, given = false, label = tag, value = val
	WHERE k.name = lock RETURNING k.token INTO minted;
	RETURN minted;
END $$;

-- Each of the following functions does one kind of operation for many names, which are sorted. The
-- reply has a row for each name. If the operation was done, the token column is not 0. Otherwise
-- the other columns describe the lock's holder. The SET clauses affect the query plans, which a
-- session makes only once, perhaps while the tables are empty.

DO $$ BEGIN
	CREATE TYPE lockbench.reply1 AS (at bigint, token bigint, owner text, label bytea, held bigint, left_ms bigint, waiters bigint);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

-- answer1 makes the reply rows for names. The parameter done has the indexes, starting at 1, of the
-- operations that were done.
--
-- Note: this function is not in the language SQL, because each statement that calls an SQL function
-- plans the function anew, unless the function is only an expression.
CREATE OR REPLACE FUNCTION lockbench.answer1(names bytea[], done bigint[], tokens bigint[]) RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY SELECT d.i, d.token, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint FROM unnest(done, tokens) d(i, token);
	IF cardinality(done) < cardinality(names) THEN
		RETURN QUERY SELECT a.i, 0::bigint, l.owner, l.label, l.token, greatest(1, ceil(extract(epoch FROM l.ends - clock_timestamp()) * 1000))::bigint,
			(SELECT count(*) FROM lockbench.waiters q WHERE q.name = a.name AND q.until > clock_timestamp())
		FROM unnest(names) WITH ORDINALITY a(name, i)
			LEFT JOIN lockbench.locks l ON l.name = a.name AND l.owner <> '' AND l.ends > clock_timestamp()
		WHERE a.i <> ALL (done);
	END IF;
END $$;

-- stale1 fails a statement that came to the server over ten seconds ago, because a tombstone
-- against it lasts 120 seconds and may soon expire. The statement may have needed 105 seconds to
-- reach the server, because the kernel sends the data of a closed connection for up to this time.
CREATE OR REPLACE FUNCTION lockbench.stale1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF clock_timestamp() > statement_timestamp() + interval '10 seconds' THEN
		RAISE EXCEPTION 'lockbench: the statement came ten seconds ago' USING ERRCODE = 'query_canceled';
	END IF;
END $$;

CREATE OR REPLACE FUNCTION lockbench.acquire1(patience text, names bytea[], owners text[], ttls bigint[], labels bytea[], vals bytea[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	done bigint[];
	tokens bigint[];
	it bigint;
	took bigint;
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	-- Names that another owner holds are refused after a read, which waits for no
	-- disk. All other rows are locked, in their order, even if they are not taken
	-- because another owner was faster or the row is marked.
	WITH taken AS (
		INSERT INTO lockbench.locks AS l (name, owner, token, ends, ttl_us, label, value)
		SELECT a.name, a.owner, lockbench.mint1(0), lockbench.after1(a.us), a.us, a.label, a.val
		FROM unnest(names, owners, ttls, labels, vals) WITH ORDINALITY a(name, owner, us, label, val, i)
		WHERE NOT EXISTS (SELECT FROM lockbench.locks h
			WHERE h.name = a.name AND h.owner <> '' AND h.ends > clock_timestamp() AND NOT (h.given AND h.owner = a.owner))
		ORDER BY a.i
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, token = lockbench.mint1(l.token),
			ends = lockbench.after1(excluded.ttl_us), ttl_us = excluded.ttl_us, given = false, label = excluded.label, value = excluded.value
		WHERE (l.owner = '' OR l.ends <= clock_timestamp()) AND l.marked <= clock_timestamp()
		RETURNING l.name, l.token)
	SELECT coalesce(array_agg(a.i), '{}'), coalesce(array_agg(t.token), '{}') INTO done, tokens
	FROM taken t JOIN unnest(names) WITH ORDINALITY a(name, i) ON a.name = t.name;
	PERFORM lockbench.stale1();
	IF cardinality(done) = cardinality(names) THEN
		RETURN QUERY SELECT * FROM lockbench.answer1(names, done, tokens);
		RETURN;
	END IF;
	-- Now take the rows locked above that are free, or granted to the owner that asks.
	-- A row that became free only now may be locked by another step. Do not wait for
	-- it, because two steps that already hold rows would deadlock.
	FOR it IN SELECT a.i FROM unnest(names, owners) WITH ORDINALITY a(name, owner, i) JOIN lockbench.locks l ON l.name = a.name
		WHERE a.i <> ALL (done) AND (l.owner = '' OR l.ends <= clock_timestamp() OR l.given AND l.owner = a.owner)
		FOR UPDATE OF l SKIP LOCKED
	LOOP
		took := lockbench.take1(names[it], owners[it], ttls[it], labels[it], vals[it]);
		IF took <> 0 THEN
			done := done || it;
			tokens := tokens || took;
		END IF;
	END LOOP;
	RETURN QUERY SELECT r.at, CASE WHEN r.token = 0 AND EXISTS (SELECT FROM lockbench.tombstones t
			WHERE t.name = names[r.at] AND t.owner = owners[r.at] AND t.until > clock_timestamp()) THEN -1 ELSE r.token END,
		r.owner, r.label, r.held, r.left_ms, r.waiters
	FROM lockbench.answer1(names, done, tokens) r;
END $$;

CREATE OR REPLACE FUNCTION lockbench.renew1(patience text, names bytea[], owners text[], tokens bigint[], ttls bigint[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	done bigint[];
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	PERFORM FROM lockbench.locks l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE;
	WITH renewed AS (
		UPDATE lockbench.locks l SET ends = lockbench.after1(a.us), ttl_us = a.us, given = false
		FROM unnest(names, owners, tokens, ttls) WITH ORDINALITY a(name, owner, token, us, i)
		WHERE l.name = a.name AND l.owner = a.owner AND l.token = a.token AND l.ends > clock_timestamp() RETURNING a.i)
	SELECT coalesce(array_agg(r.i), '{}') INTO done FROM renewed r;
	RETURN QUERY SELECT * FROM lockbench.answer1(names, done, done);
END $$;

-- release1 releases leases. If an owner is empty, release1 finds the lease by its token alone.
CREATE OR REPLACE FUNCTION lockbench.release1(patience text, names bytea[], owners text[], tokens bigint[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	done bigint[];
	waited bytea[];
	lock bytea;
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	PERFORM FROM lockbench.locks l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE;
	WITH freed AS (
		UPDATE lockbench.locks l SET owner = '', ends = clock_timestamp(), given = false, label = NULL, value = NULL
		FROM unnest(names, owners, tokens) WITH ORDINALITY a(name, owner, token, i)
		WHERE l.name = a.name AND a.owner IN ('', l.owner) AND l.owner <> '' AND l.token = a.token AND l.ends > clock_timestamp()
		RETURNING a.i, l.name, l.marked > clock_timestamp() AS marked)
	SELECT coalesce(array_agg(f.i), '{}'), coalesce(array_agg(f.name) FILTER (WHERE f.marked), '{}') INTO done, waited FROM freed f;
	FOREACH lock IN ARRAY waited LOOP
		PERFORM lockbench.pass1(lock, '');
	END LOOP;
	RETURN QUERY SELECT * FROM lockbench.answer1(names, done, done);
END $$;

-- shorten1 makes each lease end after at most the time in keeps, in microseconds. Waiters know only
-- the lease's old end, so a notice tells the first waiter to ask for the lock.
CREATE OR REPLACE FUNCTION lockbench.shorten1(patience text, names bytea[], owners text[], tokens bigint[], keeps bigint[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	done bigint[];
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	PERFORM FROM lockbench.locks l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE;
	WITH shorter AS (
		UPDATE lockbench.locks l SET ends = least(l.ends, lockbench.after1(a.us))
		FROM unnest(names, owners, tokens, keeps) WITH ORDINALITY a(name, owner, token, us, i)
		WHERE l.name = a.name AND l.owner = a.owner AND l.token = a.token AND l.ends > clock_timestamp() RETURNING a.i)
	SELECT coalesce(array_agg(s.i), '{}') INTO done FROM shorter s;
	PERFORM pg_notify(w.process, w.owner) FROM unnest(done) d, LATERAL (
		SELECT q.process, q.owner FROM lockbench.waiters q WHERE q.name = names[d] AND q.until > clock_timestamp() ORDER BY q.place LIMIT 1) w
	WHERE w.process <> '';
	RETURN QUERY SELECT * FROM lockbench.answer1(names, done, done);
END $$;

CREATE OR REPLACE FUNCTION lockbench.proclaim1(patience text, names bytea[], owners text[], tokens bigint[], vals bytea[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	done bigint[];
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	PERFORM FROM lockbench.locks l WHERE l.name = ANY (names) ORDER BY l.name FOR UPDATE;
	WITH told AS (
		UPDATE lockbench.locks l SET value = a.val
		FROM unnest(names, owners, tokens, vals) WITH ORDINALITY a(name, owner, token, val, i)
		WHERE l.name = a.name AND l.owner = a.owner AND l.token = a.token AND l.ends > clock_timestamp() RETURNING a.i)
	SELECT coalesce(array_agg(t.i), '{}') INTO done FROM told t;
	RETURN QUERY SELECT * FROM lockbench.answer1(names, done, done);
END $$;

-- withdraw1 undoes the requests of owners for names, and refuses the owners for longer than any of
-- their requests can be on its way. An acquire that locked the row before withdraw1 is undone. An
-- acquire that locks the row after withdraw1 finds the mark and the tombstone. If a row is missing,
-- withdraw1 creates it, because an acquire may be about to create it.
CREATE OR REPLACE FUNCTION lockbench.withdraw1(patience text, names bytea[], owners text[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	lock bytea;
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	INSERT INTO lockbench.locks AS l (name, marked)
	SELECT a.name, clock_timestamp() + interval '121 seconds' FROM (SELECT DISTINCT n.name FROM unnest(names) n(name)) a ORDER BY a.name
	ON CONFLICT (name) DO UPDATE SET marked = greatest(l.marked, excluded.marked);
	INSERT INTO lockbench.tombstones AS t (name, owner, until)
	SELECT a.name, a.owner, clock_timestamp() + interval '120 seconds' FROM (SELECT DISTINCT n.name, n.owner FROM unnest(names, owners) n(name, owner)) a
	ON CONFLICT (name, owner) DO UPDATE SET until = excluded.until;
	DELETE FROM lockbench.waiters q USING unnest(names, owners) a(name, owner) WHERE q.name = a.name AND q.owner = a.owner;
	UPDATE lockbench.locks l SET owner = '', ends = clock_timestamp(), given = false, label = NULL, value = NULL
	FROM unnest(names, owners) a(name, owner) WHERE l.name = a.name AND l.owner = a.owner;
	FOR lock IN SELECT DISTINCT l.name FROM unnest(names) a(name) JOIN lockbench.locks l ON l.name = a.name
		WHERE l.owner = '' OR l.ends <= clock_timestamp()
	LOOP
		PERFORM lockbench.pass1(lock, '');
	END LOOP;
	RETURN QUERY SELECT a.i, 1::bigint, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint FROM unnest(names) WITH ORDINALITY a(name, i);
END $$;

-- sign1 records a sign of life of the process in who. The sign is valid for stands microseconds.
CREATE OR REPLACE FUNCTION lockbench.sign1(who text, us bigint, stands bigint) RETURNS void LANGUAGE sql VOLATILE SET lock_timeout = '1s' AS $$
	INSERT INTO lockbench.processes AS p (process, sign_us, until) VALUES (who, us, lockbench.after1(stands))
	ON CONFLICT (process) DO UPDATE SET sign_us = greatest(p.sign_us, excluded.sign_us), until = lockbench.after1(stands);
$$;

-- enter1 puts owners into queues, and grants free locks to their first waiters. The reply's token
-- is that of the owner's new grant, -1 if the owner has a tombstone, -2 if the owner should ask for
-- the lock, and otherwise 0. If the token is 0 and another waiter has an unused grant, left_ms is
-- the time left of that grant. After that time, the owner enters the queue again.
--
-- A release locks the row. If it comes before this step, the lock is free or granted to another
-- waiter. If it comes after this step, the release finds this waiter. So no waiter is missed.
--
-- An entry need not survive a crash, so its commit does not wait for a disk. A grant must survive.
CREATE OR REPLACE FUNCTION lockbench.enter1(patience text, who text, names bytea[], owners text[], spans bigint[], labels bytea[], vals bytea[], stays bigint[])
	RETURNS SETOF lockbench.reply1 LANGUAGE plpgsql
	SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
	state bigint[] := array_fill(0::bigint, ARRAY[cardinality(names)]);
	granted boolean := false;
	it record;
BEGIN
	PERFORM set_config('lock_timeout', patience, true);
	INSERT INTO lockbench.locks AS l (name, marked)
	SELECT a.name, lockbench.after1(a.us) FROM unnest(names, stays) WITH ORDINALITY a(name, us, i) ORDER BY a.i
	ON CONFLICT (name) DO UPDATE SET marked = greatest(l.marked, excluded.marked);
	PERFORM lockbench.stale1();
	FOR at IN 1 .. cardinality(names) LOOP
		SELECT k.owner = owners[at] AND k.ends > clock_timestamp() AS mine, k.owner = '' OR k.ends <= clock_timestamp() AS free INTO it
		FROM lockbench.locks k WHERE k.name = names[at];
		IF EXISTS (SELECT FROM lockbench.tombstones t WHERE t.name = names[at] AND t.owner = owners[at] AND t.until > clock_timestamp()) THEN
			state[at] := -1;
			CONTINUE;
		ELSIF it.mine THEN
			state[at] := -2;
			CONTINUE;
		END IF;
		INSERT INTO lockbench.waiters AS q (name, owner, process, until, span_us, label, value)
		VALUES (names[at], owners[at], who, lockbench.after1(stays[at]), spans[at], labels[at], vals[at])
		ON CONFLICT (name, owner) DO UPDATE SET process = excluded.process, until = excluded.until, span_us = excluded.span_us;
		CONTINUE WHEN NOT it.free;
		IF lockbench.pass1(names[at], CASE WHEN who = '' THEN owners[at] ELSE '' END) THEN
			granted := true;
			state[at] := coalesce((SELECT k.token FROM lockbench.locks k WHERE k.name = names[at] AND k.owner = owners[at]), 0);
		ELSE
			state[at] := -2;
		END IF;
	END LOOP;
	IF NOT granted AND current_setting('synchronous_commit') <> 'off' THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
	RETURN QUERY SELECT s.i, s.state, NULL::text, NULL::bytea, NULL::bigint,
		(SELECT ceil(extract(epoch FROM k.ends - clock_timestamp()) * 1000)::bigint FROM lockbench.locks k
			WHERE s.state = 0 AND k.name = names[s.i] AND k.given AND k.ends > clock_timestamp()), NULL::bigint
	FROM unnest(state) WITH ORDINALITY s(state, i);
END $$;

-- locked1 returns the names whose rows another session has locked.
CREATE OR REPLACE FUNCTION lockbench.locked1(names bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql AS $$
DECLARE
	free bytea[] := ARRAY(SELECT l.name FROM lockbench.locks l WHERE l.name = ANY (names) FOR UPDATE SKIP LOCKED);
BEGIN
	RETURN QUERY SELECT l.name FROM lockbench.locks l WHERE l.name = ANY (names) AND l.name <> ALL (free);
END $$;

-- find1 returns the holders of the named locks. It omits free locks.
CREATE OR REPLACE FUNCTION lockbench.find1(names bytea[])
	RETURNS TABLE (lock bytea, owner text, label bytea, value bytea, token bigint, left_ms bigint, waiters bigint) LANGUAGE plpgsql
	SET lock_timeout = '1s' SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
	RETURN QUERY SELECT l.name, l.owner, l.label, l.value, l.token, greatest(1, ceil(extract(epoch FROM l.ends - clock_timestamp()) * 1000))::bigint,
		(SELECT count(*) FROM lockbench.waiters q WHERE q.name = l.name AND q.until > clock_timestamp())
	FROM lockbench.locks l WHERE l.name = ANY (names) AND l.owner <> '' AND l.ends > clock_timestamp();
END $$;

-- list1 returns a page of held locks' names that begin with prefix and follow the name in after.
CREATE OR REPLACE FUNCTION lockbench.list1(prefix bytea, after bytea, most int) RETURNS bytea[] LANGUAGE sql STABLE SET lock_timeout = '1s' AS $$
	SELECT coalesce(array_agg(p.name ORDER BY p.name), '{}') FROM (SELECT l.name FROM lockbench.locks l
		WHERE l.name > after AND l.name >= prefix AND substring(l.name FROM 1 FOR octet_length(prefix)) = prefix
			AND l.owner <> '' AND l.ends > clock_timestamp() ORDER BY l.name LIMIT most) p
$$;

-- purge1 reads a page of rows whose names follow the name in after. It deletes rows that were free
-- for a day and whose token is a day old, so a new row of the same name gets a higher token. It
-- leaves locked rows to a later purge. It returns the page's last name, or null for the last page.
CREATE OR REPLACE FUNCTION lockbench.purge1(after bytea) RETURNS bytea LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
DECLARE
	page bytea[] := ARRAY(SELECT l.name FROM lockbench.locks l WHERE l.name > after ORDER BY l.name LIMIT 1000);
BEGIN
	DELETE FROM lockbench.locks WHERE name = ANY (ARRAY(SELECT l.name FROM lockbench.locks l WHERE l.name = ANY (page)
		AND l.ends < clock_timestamp() - interval '1 day' AND l.marked < clock_timestamp() - interval '1 day'
		AND l.token < (extract(epoch FROM clock_timestamp() - interval '1 day') * 1000000)::bigint FOR UPDATE SKIP LOCKED));
	RETURN page[1000];
END $$;

-- sweep1 deletes expired tombstones, waiters and signs. It leaves locked rows to a later sweep.
CREATE OR REPLACE FUNCTION lockbench.sweep1() RETURNS void LANGUAGE sql VOLATILE SET lock_timeout = '1s' AS $$
	DELETE FROM lockbench.tombstones WHERE ctid = ANY (ARRAY(SELECT t.ctid FROM lockbench.tombstones t
		WHERE t.until < clock_timestamp() LIMIT 5000 FOR UPDATE SKIP LOCKED));
	DELETE FROM lockbench.waiters WHERE ctid = ANY (ARRAY(SELECT q.ctid FROM lockbench.waiters q
		WHERE q.until < clock_timestamp() LIMIT 5000 FOR UPDATE SKIP LOCKED));
	DELETE FROM lockbench.processes WHERE ctid = ANY (ARRAY(SELECT p.ctid FROM lockbench.processes p
		WHERE p.until < clock_timestamp() - interval '1 hour' LIMIT 5000 FOR UPDATE SKIP LOCKED));
$$;
