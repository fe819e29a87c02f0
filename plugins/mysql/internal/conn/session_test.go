package conn

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// unreadable is a connection whose client library panics at every answer.
type unreadable struct{ sqldriver.Conn }

func (unreadable) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	panic("slice bounds out of range")
}

func (unreadable) ExecContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Result, error) {
	panic("slice bounds out of range")
}

// TestUnreadableAnswer makes the client library panic at an answer. This must end the connection
// and not the process, and the outcome of the statement must count as unknown.
func TestUnreadableAnswer(t *testing.T) {
	for what, ask := range map[string]func(*Session) error{
		"query": func(s *Session) error { return s.Query(t.Context(), "SELECT 1", nil) },
		"exec":  func(s *Session) error { _, _, err := s.Exec(t.Context(), "DO 1"); return err },
	} {
		raw, _ := net.Pipe()
		s := &Session{Conn: unreadable{}, raw: raw}
		if err := ask(s); !errors.Is(err, mysqldriver.ErrMalformPkt) || !s.Broken || Definite(StatementError("acquire", "a", err)) {
			t.Errorf("%s: %v, broken %t", what, err, s.Broken)
		}
	}
}
