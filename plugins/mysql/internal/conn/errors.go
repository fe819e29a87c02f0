package conn

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"slices"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
)

// Error numbers of MySQL and MariaDB, by the names in their manuals.
const (
	ErCheckRead          = 1020 // MariaDB: record has changed since last read
	ErConCount           = 1040 // too many connections
	ErDBAccessDenied     = 1044
	ErAccessDenied       = 1045
	ErNotReady           = 1047 // Galera: the node is not part of a primary component
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
	ErMustChangePassword = 1820
	ErReadOnlyMode       = 1836
	ErExpiredPassword    = 1862
	ErInnoDBReadOnly     = 1874
	ErConnectionKilled   = 1927 // MariaDB
	ErOfflineMode        = 3032
	ErRunHook            = 3100 // group replication could not certify, and rolled back
	ErRolledBackByPlugin = 3101 // group replication found a conflict, and rolled back
	ErAccountLocked      = 3118
	ErSecureTransport    = 3159 // require_secure_transport
	ErSecureTransportMDB = 4052
	ErClientInteraction  = 4031 // idle connection was closed by the server
)

// Number returns the server's error number, or 0 if err is not an error of the server.
func Number(err error) uint16 {
	var e *mysqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// outage describes an error number that concerns the server or the connection, not the statement.
type outage struct {
	// closes means that the connection must not be used again. Either the server ends the connection,
	// or the server serves no client, and a new connection may lead to another server.
	closes bool
	// unbegun means that the statement has done nothing.
	unbegun bool
	hint    string
}

// outages has the error numbers by which a server says that it currently does not serve this
// client, for example because of a failover or a limit.
//
// Note: the unbegun field of 1047 (ErNotReady) is false, because the error may be about the second
// statement of a text whose first statement was carried out.
var outages = map[uint16]outage{
	ErNotReady:           {closes: true, hint: "the node is not part of a primary component of its Galera cluster"},
	ErServerShutdown:     {closes: true, hint: "the server shuts down"},
	ErNewAbortingConn:    {closes: true, hint: "the connection was killed"},
	ErConnectionKilled:   {closes: true, hint: "the connection was killed"},
	ErClientInteraction:  {closes: true, hint: "the server has closed the connection"},
	ErOptionPreventsStmt: {closes: true, unbegun: true, hint: readOnlyHint},
	ErReadOnlyMode:       {closes: true, unbegun: true, hint: readOnlyHint},
	ErReadOnlyTrx:        {closes: true, unbegun: true, hint: readOnlyHint},
	ErInnoDBReadOnly:     {closes: true, unbegun: true, hint: readOnlyHint},
	ErRunHook:            {closes: true, unbegun: true, hint: "the member cannot reach its replication group"},
	ErOfflineMode:        {closes: true, unbegun: true, hint: "the server is in offline_mode"},
	ErHostIsBlocked:      {unbegun: true, hint: "see FLUSH HOSTS and max_connect_errors"},
	ErConCount:           {unbegun: true, hint: limitHint},
	ErTooManyUserConns:   {unbegun: true, hint: limitHint},
	ErUserLimitReached:   {unbegun: true, hint: limitHint},
}

const (
	readOnlyHint = "the server is read-only, a replica or in a failover; address must name the primary"
	limitHint    = "see max_connections, max_user_connections and the limits of the account"
)

// Unserved reports whether err says that the server currently serves no client. The
// request may be sent again on a new connection, which may lead to another server.
func Unserved(err error) bool {
	n := Number(err)
	return outages[n].closes && (outages[n].unbegun || n == ErNotReady)
}

// RolledBack reports whether err says that the server has rolled a statement back. The statement
// conflicted with another one, or was killed so that other operations of its batch could go on. It
// may be sent again, because a repeated acquire recognizes a grant to its owner.
func RolledBack(err error) bool {
	switch Number(err) {
	case ErLockDeadlock, ErLockWaitTimeout, ErCheckRead, ErQueryInterrupted, ErRolledBackByPlugin:
		return true
	}
	return false
}

// advice tells the user what to do about an error that a retry does not cure.
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

// Definite reports whether err, which may be nil, says for certain whether a request took effect.
func Definite(err error) bool {
	answers := []error{nil, driver.ErrHeld, driver.ErrNotHeld, driver.ErrWithdrawn, driver.ErrNotSent, driver.ErrInvalid, driver.ErrDenied}
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// ReadOnlyError returns the error for the named server, which is read-only.
func ReadOnlyError(server string) error {
	return NotSent(fmt.Errorf("%s: %s", server, readOnlyHint))
}

// DialError classifies an error from the set-up of a connection. After any such
// error, nothing of the request has been sent yet.
func DialError(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrDenied) || errors.Is(err, driver.ErrNotSent) {
		return err
	}
	if hint := outages[Number(err)].hint; hint != "" {
		return NotSent(fmt.Errorf("%w (%s)", err, hint))
	}
	if hint := deniedBy(err); hint != "" {
		return fmt.Errorf("mysql: %w: %w: %w%s", driver.ErrDenied, driver.ErrNotSent, err, hint)
	}
	return NotSent(withCause(ctx, err))
}

func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// deniedBy returns advice for the user if err says that the client cannot log in, and otherwise "".
func deniedBy(err error) string {
	if hint := advice(Number(err)); hint != "" {
		return " (" + hint + ")"
	}
	switch {
	case fips140.Enforced() && (errors.Is(err, mysqldriver.ErrNativePassword) || strings.Contains(err.Error(), "FIPS 140-only mode")):
		return " (GODEBUG=fips140=only forbids SHA-1, which mysql_native_password is, and a login without TLS uses:" +
			" an account IDENTIFIED WITH caching_sha2_password and tls_enabled=true are needed, or GODEBUG=fips140=on)"
	case errors.Is(err, mysqldriver.ErrNoTLS):
		return " (turn TLS on in the server, or off here)"
	case errors.Is(err, mysqldriver.ErrCleartextPassword), errors.Is(err, mysqldriver.ErrOldPassword),
		errors.Is(err, mysqldriver.ErrUnknownPlugin), errors.Is(err, mysqldriver.ErrNativePassword), errors.Is(err, mysqldriver.ErrOldProtocol):
		return " (see CREATE USER ... IDENTIFIED WITH)"
	}
	return ""
}

// StatementError classifies an error of a statement on an open connection. An
// error that is already classified is returned unchanged.
func StatementError(what, name string, err error) error {
	switch {
	case Definite(err), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnavailable):
		return err
	case errors.Is(err, ErrTooLong):
		return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrInvalid, err)
	case advice(Number(err)) != "":
		return fmt.Errorf("mysql: %s %q: %w: %w (%s)", what, name, driver.ErrDenied, err, advice(Number(err)))
	case outages[Number(err)].unbegun:
		return fmt.Errorf("mysql: %s %q: %w: %w: %w (%s)", what, name, driver.ErrUnavailable, driver.ErrNotSent, err, outages[Number(err)].hint)
	case outages[Number(err)].hint != "":
		return fmt.Errorf("mysql: %s %q: %w: %w (%s)", what, name, driver.ErrUnavailable, err, outages[Number(err)].hint)
	case RolledBack(err):
		return fmt.Errorf("mysql: %s %q: %w: %w: another transaction keeps the row locked: %w", what, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	return fmt.Errorf("mysql: %s %q: %w: %w", what, name, driver.ErrUnavailable, err)
}
