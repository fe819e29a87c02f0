package mysql

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
	erCheckRead          = 1020 // MariaDB: record has changed since last read
	erConCount           = 1040 // too many connections
	erDBAccessDenied     = 1044
	erAccessDenied       = 1045
	erWSREPNotReady      = 1047 // Galera: the node is not part of the cluster
	erBadDB              = 1049
	erServerShutdown     = 1053
	erBadField           = 1054
	erNoSuchThread       = 1094
	erKillDenied         = 1095
	erHostIsBlocked      = 1129
	erHostNotPrivileged  = 1130
	erTableAccessDenied  = 1142
	erColumnAccessDenied = 1143
	erNoSuchTable        = 1146
	erNewAbortingConn    = 1152 // connection was killed
	erTooManyUserConns   = 1203
	erLockWaitTimeout    = 1205
	erLockDeadlock       = 1213
	erUserLimitReached   = 1226
	erSpecificAccess     = 1227
	erOptionPreventsStmt = 1290 // --read-only
	erQueryInterrupted   = 1317
	erBinlogUnsafe       = 1665 // binlog_format=STATEMENT under READ COMMITTED
	erAccessDeniedNoPw   = 1698
	erReadOnlyTrx        = 1792
	erReadOnlyMode       = 1836
	erAccountLocked      = 3118
	erMustChangePassword = 1820
	erExpiredPassword    = 1862
	erConnectionKilled   = 1927 // MariaDB
	erSecureTransport    = 3159 // require_secure_transport
	erSecureTransportMDB = 4052
	erClientInteraction  = 4031 // idle connection was closed by the server
)

// number is the server's error number, 0 when err is none of the server's.
func number(err error) uint16 {
	var e *mysqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// fatal tells the numbers after which the server ends the connection, or
// after which it must not be used again.
func fatal(number uint16) bool {
	switch number {
	case erServerShutdown, erNewAbortingConn, erConnectionKilled, erClientInteraction, erOptionPreventsStmt, erReadOnlyMode, erReadOnlyTrx:
		return true
	}
	return false
}

// undone tells the errors after which the server has rolled a statement back
// because others were in its way, or because it was killed to make way for the
// rest of a batch. It may be sent again: an acquire is known by its nonce.
func undone(err error) bool {
	switch number(err) {
	case erLockDeadlock, erLockWaitTimeout, erCheckRead, erQueryInterrupted:
		return true
	}
	return false
}

// advice says what to do about an error that trying again does not cure.
func advice(number uint16) string {
	switch number {
	case erAccessDenied, erAccessDeniedNoPw:
		return "check username and password, and whether the server wants tls_enabled=true or the user a certificate (tls_cert_file)"
	case erDBAccessDenied, erTableAccessDenied, erColumnAccessDenied, erSpecificAccess:
		return "the user needs: GRANT SELECT, INSERT, UPDATE, DELETE ON DATABASE.TABLE, and CREATE unless the table is there already" +
			" (lockplugin-mysql ddl prints it)"
	case erBadDB:
		return "create the database, or name another one in address"
	case erHostNotPrivileged:
		return "the server does not accept this host; see CREATE USER"
	case erBadField:
		return "the table was not made by this version; lockplugin-mysql ddl prints what it should be"
	case erAccountLocked, erMustChangePassword, erExpiredPassword:
		return "see ALTER USER"
	case erSecureTransport, erSecureTransportMDB:
		return "the server wants TLS: set tls_enabled=true"
	case erBinlogUnsafe:
		return "the server needs binlog_format=ROW or MIXED"
	}
	return ""
}

// settled reports whether err leaves no doubt about what a request has done.
func settled(err error) bool {
	answers := []error{nil, driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrNotSent, driver.ErrInvalid, driver.ErrDenied}
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// refused says what to do about an error that keeps the server from even
// beginning a statement, for as long as it is in that state: a failover is
// under way, or a limit is reached.
func refused(number uint16) string {
	switch number {
	case erOptionPreventsStmt, erReadOnlyMode, erReadOnlyTrx:
		return readOnlyHint
	case erHostIsBlocked:
		return "see FLUSH HOSTS and max_connect_errors"
	case erConCount, erTooManyUserConns, erUserLimitReached:
		return "see max_connections, max_user_connections and the limits of the account"
	}
	return ""
}

const readOnlyHint = "the server is read-only, a replica or in a failover; address must name the primary"

func readOnlyError(server string) error {
	return notSent(fmt.Errorf("%s: %s", server, readOnlyHint))
}

// dialError classifies an error met while a connection was set up: nothing of
// the request has been sent yet, whatever it is.
func dialError(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrNotSent) {
		return err
	}
	if hint := refused(number(err)); hint != "" {
		return notSent(fmt.Errorf("%w (%s)", err, hint))
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
	return notSent(err)
}

// deniedBy says what to do when err refuses the client, "" if it does not.
func deniedBy(err error) string {
	if hint := advice(number(err)); hint != "" {
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

// statementError classifies an error of a statement on an open connection.
func statementError(what, name string, err error) error {
	switch {
	case errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrDenied):
		return err
	case errors.Is(err, errTooLong):
		return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrInvalid, err)
	case advice(number(err)) != "":
		return fmt.Errorf("mysql: %s %q: %w: %w (%s)", what, name, driver.ErrDenied, err, advice(number(err)))
	case refused(number(err)) != "":
		return fmt.Errorf("mysql: %s %q: %w: %w: %w (%s)", what, name, driver.ErrUnavailable, driver.ErrNotSent, err, refused(number(err)))
	case undone(err):
		return fmt.Errorf("mysql: %s %q: %w: %w: another transaction keeps the row locked: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrUnavailable, err)
}
