package mysql

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// session is one connection. It runs one statement at a time.
type session struct {
	conn     sqldriver.Conn
	id       uint64 // the server's, for KILL
	bell     uint64 // see ring; zero when it has none
	server   server
	broken   bool          // not to be used again
	slots    chan struct{} // in which it has a place while it is in use
	apart    chan struct{} // and another one; nil for none
	lastUsed time.Time
}

// server is what a new connection learns about the other end.
type server struct {
	version  string
	mariadb  bool
	readOnly bool
	name     string // host and port as the server calls itself
	flush    int    // innodb_flush_log_at_trx_commit
	binlog   bool
	sync     int // sync_binlog
	packet   int // max_allowed_packet
}

// setup prepares a connection and asks who is there, in one trip. The server's
// settings and its init_connect may have left anything in the session: each
// setting that changes what our statements mean, or whether they are carried
// out, gets its value here, and a transaction or table locks that were begun
// end. The character set comes first, because MySQL does not understand the
// texts after it in UTF-16 or UTF-32, and completion_type before ROLLBACK, which
// it would chain.
//
// READ COMMITTED takes no gap locks, which deadlock concurrent first inserts.
// One second is the shortest lock wait that MySQL knows. UTF-8 is for LOWER,
// which leaves binary strings as they are.
//
// Note: DEFAULT is the server's global value, so it will not do, but for
// timestamp, which has none.
func setup(database string) string {
	return "SET NAMES utf8mb4;SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',completion_type=0,timestamp=DEFAULT;" +
		"UNLOCK TABLES;ROLLBACK;USE `" + strings.ReplaceAll(database, "`", "``") + "`;" +
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE;" +
		"SET SESSION autocommit=1,time_zone='+00:00',innodb_lock_wait_timeout=1,lock_wait_timeout=1," +
		"sql_select_limit=18446744073709551615,sql_big_selects=1,sql_safe_updates=0,max_sort_length=1024,div_precision_increment=4," +
		"/*M!100600 max_statement_time=0,query_cache_type=0,*//*!80013 max_execution_time=0,use_secondary_engine=OFF,*/" +
		"wait_timeout=28800;" +
		"SELECT CONNECTION_ID(), VERSION(), @@version_comment, @@global.read_only, @@innodb_read_only, @@hostname, @@port," +
		" @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, @@max_allowed_packet"
}

// openSession dials and sets up a connection. Its error wraps ErrDenied, or
// ErrUnavailable and ErrNotSent.
func openSession(ctx context.Context, dial sqldriver.Connector, setup string) (*session, error) {
	said := &said{}
	conn, err := dial.Connect(context.WithValue(ctx, saidKey{}, said))
	if err != nil {
		return nil, dialError(ctx, said.with(err))
	}
	s := &session{conn: conn, lastUsed: time.Now()}
	err = s.query(ctx, setup, func(row []sqldriver.Value) error {
		s.id = asUint(row[0])
		version := asString(row[1])
		s.server = server{
			version:  version,
			mariadb:  strings.Contains(strings.ToLower(version+asString(row[2])), "mariadb"),
			readOnly: on(asString(row[3])) || on(asString(row[4])),
			name:     asString(row[5]) + ":" + asString(row[6]),
			flush:    int(asUint(row[7])),
			binlog:   on(asString(row[8])),
			sync:     int(asUint(row[9])),
			packet:   int(asUint(row[10])),
		}
		return nil
	})
	if err == nil && s.server.readOnly {
		err = readOnlyError(s.server.name)
	}
	if err != nil {
		s.close()
		return nil, dialError(ctx, err)
	}
	return s, nil
}

// on reads a switch as MySQL (0, 1) and MariaDB (also words) show it.
func on(v string) bool { return v != "0" && v != "" && !strings.EqualFold(v, "off") }

// takeBell gives the session a name of its own that any other session can
// find it by, for as long as it lives: see ring.
func (s *session) takeBell(ctx context.Context) error {
	bell := rand.Uint64()>>1 | 2 // never 0 or 1, which mean that there is none
	err := s.query(ctx, "SELECT GET_LOCK('"+bellName(bell)+"',0)", func(row []sqldriver.Value) error {
		if asUint(row[0]) != 1 {
			return fmt.Errorf("mysql: %w: GET_LOCK of a random name is refused", driver.ErrUnavailable)
		}
		return nil
	})
	if err == nil {
		s.bell = bell
	}
	return err
}

// usable reports whether the server still keeps the connection.
func (s *session) usable(ctx context.Context) bool {
	r, ok := s.conn.(sqldriver.SessionResetter)
	return !ok || r.ResetSession(ctx) == nil
}

// errTooLong: the server takes no statement of that length.
var errTooLong = errors.New("statement is too long")

// fits refuses what the server would end the connection for.
func (s *session) fits(text string) error {
	if most := s.server.packet; most > 0 && len(text)+1 > most {
		return fmt.Errorf("%w: %d bytes, and the server's max_allowed_packet is %d", errTooLong, len(text)+1, most)
	}
	return nil
}

// exec runs a statement that returns no rows.
func (s *session) exec(ctx context.Context, text string) (affected int64, id uint64, err error) {
	if err := s.fits(text); err != nil {
		return 0, 0, err
	}
	result, err := s.conn.(sqldriver.ExecerContext).ExecContext(ctx, text, nil)
	if err != nil {
		return 0, 0, s.failed(ctx, err)
	}
	affected, _ = result.RowsAffected() // never fails for this driver
	last, _ := result.LastInsertId()
	return affected, uint64(last), nil
}

// query runs statements of which the last one returns rows.
func (s *session) query(ctx context.Context, text string, each func(row []sqldriver.Value) error) error {
	if err := s.fits(text); err != nil {
		return err
	}
	rows, err := s.conn.(sqldriver.QueryerContext).QueryContext(ctx, text, nil)
	if err != nil {
		return s.failed(ctx, err)
	}
	row := make([]sqldriver.Value, len(rows.Columns()))
	for {
		err := rows.Next(row)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = each(row)
		}
		if err != nil {
			_ = rows.Close() // what failed is told by err
			return s.failed(ctx, err)
		}
	}
	if err := rows.Close(); err != nil {
		return s.failed(ctx, err)
	}
	return nil
}

// failed notes whether the connection survives err.
func (s *session) failed(ctx context.Context, err error) error {
	if number(err) == 0 || fatal(number(err)) {
		s.broken = true
	}
	if cause := context.Cause(ctx); cause != nil && number(err) == 0 {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// close ends the connection.
func (s *session) close() { _ = s.conn.Close() }

// The driver's text protocol returns numbers as numbers or as text.
func asUint(v sqldriver.Value) uint64 {
	switch n := v.(type) {
	case int64:
		return uint64(n)
	case uint64:
		return n
	case []byte:
		u, _ := strconv.ParseUint(string(n), 10, 64)
		return u
	}
	return 0
}

func asInt(v sqldriver.Value) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case uint64:
		return int64(n)
	case []byte:
		i, _ := strconv.ParseInt(string(n), 10, 64)
		return i
	}
	return 0
}

func asString(v sqldriver.Value) string {
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

func asBytes(v sqldriver.Value) []byte {
	if b, ok := v.([]byte); ok {
		return append([]byte(nil), b...)
	}
	return nil
}
