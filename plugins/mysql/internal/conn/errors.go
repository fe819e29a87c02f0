package conn

import (
	"context"
	"errors"
	"fmt"
	"slices"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/config"
)

// Error numbers of MySQL and MariaDB, by the names in their manuals.
const (
	ErCheckRead          = 1020 // MariaDB: record has changed since last read
	ErConCount           = 1040 // too many connections
	ErDBAccessDenied     = 1044
	ErAccessDenied       = 1045
	ErBadDB              = 1049
	ErServerShutdown     = 1053
	ErBadField           = 1054
	ErNoSuchThread       = 1094
	ErKillDenied         = 1095
	ErHostIsBlocked      = 1129
	ErHostNotPrivileged  = 1130
	ErTableAccessDenied  = 1142
	ErColumnAccessDenied = 1143
	ErNoSuchTable        = 1146
	ErNewAbortingConn    = 1152 // connection was killed
	ErTooManyUserConns   = 1203
	ErLockWaitTimeout    = 1205
	ErLockDeadlock       = 1213
	ErUserLimitReached   = 1226
	ErSpecificAccess     = 1227
	ErOptionPreventsStmt = 1290 // --read-only
	ErQueryInterrupted   = 1317
	ErBinlogUnsafe       = 1665 // binlog_format=STATEMENT under READ COMMITTED
	ErAccessDeniedNoPw   = 1698
	ErReadOnlyTrx        = 1792
	ErReadOnlyMode       = 1836
	ErAccountLocked      = 3118
	ErMustChangePassword = 1820
	ErExpiredPassword    = 1862
	ErConnectionKilled   = 1927 // MariaDB
	ErSecureTransport    = 3159 // require_secure_transport
	ErSecureTransportMDB = 4052
	ErClientInteraction  = 4031 // idle connection was closed by the server
)

// Number is the server's error number, 0 when err is none of the server's.
func Number(err error) uint16 {
	var e *mysqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// fatal reports the numbers after which the server ends the connection, or
// after which it must not be used again.
func fatal(number uint16) bool {
	switch number {
	case ErServerShutdown, ErNewAbortingConn, ErConnectionKilled, ErClientInteraction, ErOptionPreventsStmt, ErReadOnlyMode, ErReadOnlyTrx:
		return true
	}
	return false
}

// RolledBack reports the errors after which the server has rolled a statement back
// because others were in its way, or because it was killed to make way for the
// rest of a batch. It may be sent again: an acquire is known by its nonce.
func RolledBack(err error) bool {
	switch Number(err) {
	case ErLockDeadlock, ErLockWaitTimeout, ErCheckRead, ErQueryInterrupted:
		return true
	}
	return false
}

// advice says what to do about an error that trying again does not cure.
func advice(number uint16) string {
	switch number {
	case ErAccessDenied, ErAccessDeniedNoPw:
		return "check username and password, and whether the server wants tls_enabled=true or the user a certificate (tls_cert_file)"
	case ErDBAccessDenied, ErTableAccessDenied, ErColumnAccessDenied, ErSpecificAccess:
		return "the user needs: GRANT SELECT, INSERT, UPDATE, DELETE ON DATABASE.TABLE, and CREATE unless the table is there already" +
			" (lockplugin-mysql ddl prints it)"
	case ErBadDB:
		return "create the database, or name another one in address"
	case ErHostNotPrivileged:
		return "the server does not accept this host; see CREATE USER"
	case ErBadField:
		return "the table was not made by this version; lockplugin-mysql ddl prints what it should be"
	case ErAccountLocked, ErMustChangePassword, ErExpiredPassword:
		return "see ALTER USER"
	case ErSecureTransport, ErSecureTransportMDB:
		return "the server wants TLS: set tls_enabled=true"
	case ErBinlogUnsafe:
		return "the server needs binlog_format=ROW or MIXED"
	}
	return ""
}

// Definite reports whether err leaves no doubt about what a request has done.
func Definite(err error) bool {
	answers := []error{nil, driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrNotSent, driver.ErrInvalid, driver.ErrDenied}
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// refused says what to do about an error that keeps the server from even
// beginning a statement, for as long as it is in that state: a failover is
// under way, or a limit is reached.
func refused(number uint16) string {
	switch number {
	case ErOptionPreventsStmt, ErReadOnlyMode, ErReadOnlyTrx:
		return readOnlyHint
	case ErHostIsBlocked:
		return "see FLUSH HOSTS and max_connect_errors"
	case ErConCount, ErTooManyUserConns, ErUserLimitReached:
		return "see max_connections, max_user_connections and the limits of the account"
	}
	return ""
}

const readOnlyHint = "the server is read-only, a replica or in a failover; address must name the primary"

// ReadOnlyError is that of a server which takes no changes.
func ReadOnlyError(server string) error {
	return NotSent(fmt.Errorf("%s: %s", server, readOnlyHint))
}

// DialError classifies an error met while a connection was set up: nothing of
// the request has been sent yet, whatever it is.
func DialError(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrNotSent) {
		return err
	}
	if hint := refused(Number(err)); hint != "" {
		return NotSent(fmt.Errorf("%w (%s)", err, hint))
	}
	if explained := config.ExplainTLS(err); explained != nil {
		return fmt.Errorf("mysql: %w", explained)
	}
	if hint := deniedBy(err); hint != "" {
		return fmt.Errorf("mysql: %w: %w: %w%s", driver.ErrDenied, driver.ErrNotSent, err, hint)
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return NotSent(err)
}

// deniedBy says what to do when err refuses the client, "" if it does not.
func deniedBy(err error) string {
	if hint := advice(Number(err)); hint != "" {
		return " (" + hint + ")"
	}
	switch {
	case errors.Is(err, mysqldriver.ErrNoTLS):
		return " (turn TLS on in the server, or off here)"
	case errors.Is(err, mysqldriver.ErrCleartextPassword), errors.Is(err, mysqldriver.ErrOldPassword),
		errors.Is(err, mysqldriver.ErrUnknownPlugin), errors.Is(err, mysqldriver.ErrNativePassword), errors.Is(err, mysqldriver.ErrOldProtocol):
		return " (see CREATE USER ... IDENTIFIED WITH)"
	}
	return ""
}

// StatementError classifies an error of a statement on an open connection. It
// leaves alone what is an answer or was classified.
func StatementError(what, name string, err error) error {
	switch {
	case Definite(err), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, ErrTooLong):
		return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrInvalid, err)
	case advice(Number(err)) != "":
		return fmt.Errorf("mysql: %s %q: %w: %w (%s)", what, name, driver.ErrDenied, err, advice(Number(err)))
	case refused(Number(err)) != "":
		return fmt.Errorf("mysql: %s %q: %w: %w: %w (%s)", what, name, driver.ErrUnavailable, driver.ErrNotSent, err, refused(Number(err)))
	case RolledBack(err):
		return fmt.Errorf("mysql: %s %q: %w: %w: another transaction keeps the row locked: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrUnavailable, err)
}
