// Package conn opens connections to MySQL and MariaDB. If a statement fails, the caller learns
// whether the statement was sent. A caller can kill a statement that runs on another connection.
// Each connection overrides the server settings that would change the meaning of a statement.
package conn

import (
	"cmp"
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
)

// Session is one connection. It runs one statement at a time.
type Session struct {
	Conn   sqldriver.Conn
	raw    net.Conn // the network connection, below Conn and TLS
	WakeID uint64   // names the user lock that this session holds; zero if GET_LOCK is refused
	Server Server
	Broken bool          // the session must not be used again
	slots  chan struct{} // the pool's slots, spare or kills, in which a session in use has a place

	sent, heard time.Time // when the last statement was sent, and when the last answer came
	changed     time.Time // when a statement other than SELECT was last answered
	suspicious  bool      // the server went silent or serves no client; check older connections too
}

// WakePrefix begins the name of each user lock (a lock taken by GET_LOCK) of this program.
const WakePrefix = "lockbench."

// WakeName returns the name of the user lock that the session with this wake id holds.
func WakeName(id uint64) string { return WakePrefix + strconv.FormatUint(id, 36) }

// Kill returns a statement that interrupts the running statement of the session with wakeID.
//
// Note: KILL QUERY must not name a session by its number. If the address leads to several servers,
// the KILL may reach another server, where a session of another program has that number. The
// session's user lock has a random name, so no other session on any server holds this lock.
func Kill(wakeID uint64) string { return "KILL QUERY IS_USED_LOCK('" + WakeName(wakeID) + "')" }

// Setup returns an SQL text that prepares a connection and asks the server about itself, in one
// round trip. The server's settings and its init_connect may have changed any setting of the
// session. So the text sets each setting that could change or prevent our statements. It also ends
// any transaction or table lock that init_connect left open. It sets the character set first,
// because under UTF-16 or UTF-32 MySQL would misread the rest. It sets completion_type before
// ROLLBACK, because this setting can make ROLLBACK begin another transaction.
//
// The isolation level is READ COMMITTED, because with gap locks concurrent inserts of new rows
// would deadlock. A lock wait is one second, the shortest that MySQL has. The character set is
// UTF-8 and not binary, because a statement calls LOWER, which does not change binary strings.
//
// Note: do not set a variable to DEFAULT, because DEFAULT means the server's global value. Only
// timestamp has no global value.
func Setup(database string) string {
	return "SET NAMES utf8mb4;SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',completion_type=0,timestamp=DEFAULT;" +
		"UNLOCK TABLES;ROLLBACK;USE `" + strings.ReplaceAll(database, "`", "``") + "`;" +
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE;" +
		"SET SESSION autocommit=1,time_zone='+00:00',innodb_lock_wait_timeout=1,lock_wait_timeout=1," +
		"sql_select_limit=18446744073709551615,sql_big_selects=1,sql_safe_updates=0,max_sort_length=1024,div_precision_increment=4," +
		"/*M!100600 max_statement_time=0,query_cache_type=0,*//*!80013 max_execution_time=0,use_secondary_engine=OFF,*/" +
		"wait_timeout=28800;" +
		"SHOW STATUS LIKE 'wsrep_cluster_state_uuid';" + // empty without Galera
		"SELECT VERSION(), @@version_comment, @@global.read_only, @@innodb_read_only, @@hostname, @@port," +
		" @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, @@max_allowed_packet," +
		" CONCAT(@@server_id/*!80000 ,' ',@@server_uuid*//*M!110700 ,' ',@@server_uid*/)"
}

// Open dials and sets up a connection. Its error wraps either ErrDenied, or
// both ErrUnavailable and ErrNotSent.
func Open(ctx context.Context, dial sqldriver.Connector, setup string) (*Session, error) {
	o := &opening{}
	conn, err := dial.Connect(context.WithValue(ctx, openingKey{}, o))
	if err != nil {
		return nil, o.explain(ctx, err)
	}
	s := &Session{Conn: conn, raw: o.raw}
	id := rand.Uint64()>>1 | 2 // never 0 or 1, which mean that there is no wake id
	err = s.setUp(ctx, setup, "GET_LOCK('"+WakeName(id)+"',0)")
	if refusal := err; Number(err) != 0 && !s.Broken {
		// Perhaps the server refuses only GET_LOCK, so try without GET_LOCK.
		if err = s.setUp(ctx, setup, "1"); err == nil {
			id, s.Server.NoLocks = 0, refusal
		}
	}
	s.WakeID = id
	if o.most > 0 {
		s.Server.Packet = min(s.Server.Packet, o.most)
	}
	switch {
	case err != nil:
	case s.Server.ReadOnly:
		err = ReadOnlyError(s.Server.Name)
	default:
		err = s.Server.supported()
	}
	if err != nil {
		s.Close()
		return nil, DialError(ctx, err)
	}
	return s, nil
}

// setUp runs the statements in setup. To the last one, a SELECT, it appends the SQL expression in
// lock, whose value must be 1.
func (s *Session) setUp(ctx context.Context, setup, lock string) error {
	cluster := ""
	return s.Query(ctx, setup+","+lock, func(row []sqldriver.Value) error {
		if len(row) == 2 {
			cluster = String(row[1])
			return nil
		}
		version := String(row[0])
		s.Server = Server{
			Version:  version,
			MariaDB:  strings.Contains(strings.ToLower(version+String(row[1])), "mariadb"),
			ReadOnly: On(String(row[2])) || On(String(row[3])),
			Name:     String(row[4]) + ":" + String(row[5]),
			Flush:    int(Uint(row[6])),
			Binlog:   On(String(row[7])),
			Sync:     int(Uint(row[8])),
			Packet:   int(Uint(row[9])),
		}
		s.Server.ID = s.Server.Name + " (server id " + String(row[10]) + ")"
		s.Server.Cluster = cmp.Or(cluster, s.Server.ID)
		if Uint(row[11]) != 1 {
			return fmt.Errorf("mysql: %w: GET_LOCK of a random name is not granted", driver.ErrUnavailable)
		}
		return nil
	})
}

// On reports whether a server variable is on. MariaDB may show ON or OFF in place of 1 or 0.
func On(v string) bool { return v != "0" && v != "" && !strings.EqualFold(v, "off") }

// Ask returns an error if the server is read-only or does not answer before ctx ends.
func (s *Session) Ask(ctx context.Context) error {
	return s.Query(ctx, "DO 0;SELECT @@global.read_only, @@innodb_read_only", func(row []sqldriver.Value) error {
		if On(String(row[0])) || On(String(row[1])) {
			return s.ReadOnly()
		}
		return nil
	})
}

// ReadOnly marks the session broken and returns the error for a read-only server.
func (s *Session) ReadOnly() error {
	s.Broken, s.suspicious = true, true
	return ReadOnlyError(s.Server.Name)
}

// usable reports whether the server still keeps the connection open.
func (s *Session) usable() bool {
	r, ok := s.Conn.(sqldriver.SessionResetter)
	return !ok || r.ResetSession(context.Background()) == nil
}

// ErrTooLong means that a statement is longer than the server's max_allowed_packet.
var ErrTooLong = errors.New("statement is too long")

// begin prepares s for a statement. It refuses a text above the server's limit, because the server
// would close the connection. If ctx ends before done is called, reads and writes of s fail.
//
// Note: the driver does not watch ctx, because the driver would need a goroutine per connection,
// which would wake twice for each statement.
func (s *Session) begin(ctx context.Context, text string) (bare context.Context, done func(), err error) {
	if most := s.Server.Packet; most > 0 && len(text)+1 > most {
		return nil, nil, fmt.Errorf("%w: %d bytes, and the server's max_allowed_packet is %d", ErrTooLong, len(text)+1, most)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, s.failed(ctx, err)
	}
	s.sent = time.Now()
	stop := context.AfterFunc(ctx, func() { _ = s.raw.SetDeadline(time.Unix(1, 0)) })
	return context.WithoutCancel(ctx), func() {
		if !stop() {
			s.Broken, s.suspicious = true, true
		}
		if s.Broken {
			return
		}
		s.heard = time.Now()
		if !strings.HasPrefix(text, "SELECT") {
			s.changed = s.heard
		}
	}, nil
}

// Exec runs a statement that returns no rows. The result id is the statement's last insert id.
func (s *Session) Exec(ctx context.Context, text string) (affected int64, id uint64, err error) {
	bare, done, err := s.begin(ctx, text)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	result, err := parsed(func() (sqldriver.Result, error) { return s.Conn.(sqldriver.ExecerContext).ExecContext(bare, text, nil) })
	if err != nil {
		return 0, 0, s.failed(ctx, err)
	}
	affected, _ = result.RowsAffected() // this driver never fails here
	last, _ := result.LastInsertId()
	return affected, uint64(last), nil
}

// Query runs the statements in text. It passes every row of their replies to the each function.
func (s *Session) Query(ctx context.Context, text string, each func(row []sqldriver.Value) error) error {
	bare, done, err := s.begin(ctx, text)
	if err != nil {
		return err
	}
	defer done()
	rows, err := parsed(func() (sqldriver.Rows, error) { return s.Conn.(sqldriver.QueryerContext).QueryContext(bare, text, nil) })
	if err != nil {
		return s.failed(ctx, err)
	}
	more := rows.(sqldriver.RowsNextResultSet)
	row := make([]sqldriver.Value, len(rows.Columns()))
	for {
		_, err := parsed(func() (none struct{}, _ error) { return none, rows.Next(row) })
		if errors.Is(err, io.EOF) && more.HasNextResultSet() {
			if _, err = parsed(func() (none struct{}, _ error) { return none, more.NextResultSet() }); err == nil {
				row = make([]sqldriver.Value, len(rows.Columns()))
				continue
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = each(row)
		}
		if err != nil {
			if !errors.Is(err, mysqldriver.ErrMalformPkt) { // then the rest of the reply cannot be parsed
				_ = rows.Close() // an earlier error is in err
			}
			return s.failed(ctx, err)
		}
	}
	if err := rows.Close(); err != nil {
		return s.failed(ctx, err)
	}
	return nil
}

// parsed returns the results of f, a call of the client library. The library panics if it cannot
// parse an answer, as was seen after a KILL. In this case parsed returns an error, and the outcome
// of the statement is unknown.
func parsed[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", mysqldriver.ErrMalformPkt, p)
		}
	}()
	return f()
}

// failed marks s broken if err makes s unusable.
func (s *Session) failed(ctx context.Context, err error) error {
	if Number(err) == 0 || outages[Number(err)].closes {
		s.Broken = true
	}
	s.suspicious = s.suspicious || Unserved(err)
	if cause := context.Cause(ctx); cause != nil && Number(err) == 0 {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// Close closes the connection.
func (s *Session) Close() { _ = s.Conn.Close() }

// The driver returns an SQL number either as a Go number or as text.

// Uint returns the number in the value v.
func Uint(v sqldriver.Value) uint64 {
	switch n := v.(type) {
	case int64:
		return uint64(n)
	case uint64:
		return n
	case []byte:
		if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
			return uint64(i)
		}
		u, _ := strconv.ParseUint(string(n), 10, 64)
		return u
	}
	return 0
}

// Int returns the value v as a number that may be negative.
func Int(v sqldriver.Value) int64 { return int64(Uint(v)) }

// String returns the value v as text.
func String(v sqldriver.Value) string {
	switch s := v.(type) {
	case []byte:
		return string(s)
	case string:
		return s
	case int64:
		return strconv.FormatInt(s, 10)
	case uint64:
		return strconv.FormatUint(s, 10)
	}
	return ""
}

// Bytes returns a copy of a binary string, or nil if the string is NULL or empty.
func Bytes(v sqldriver.Value) []byte {
	b, _ := v.([]byte)
	return append([]byte(nil), b...)
}
