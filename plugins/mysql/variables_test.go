package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"strings"
	"testing"
)

// allowed has the session variables that the tests do not set, each with the reason.
var allowed = map[string]string{
	"MAX_SESSION_MEM_USED": "a session without memory is refused by the server",
	"SQL_LOG_BIN":          "it needs a right of its own, and decides only what replicas get",
	"PSEUDO_THREAD_ID":     "it needs a right of its own: KILL looks for that id",
	"SERVER_ID":            "as SQL_LOG_BIN",
	"WSREP_ON":             "as SQL_LOG_BIN",
	"GTID_SEQ_NO":          "as SQL_LOG_BIN",
	"SKIP_REPLICATION":     "as SQL_LOG_BIN",
	"REQUIRE_ROW_FORMAT":   "it needs a right of its own, and leaves nothing but rows of a log to be written",
}

type variable struct {
	name, kind  string
	least, most string
	list        []string // the members of an enumeration or a set
}

// assignments returns SET statements, with several values for each session variable not in allowed.
func assignments(t *testing.T, w *fixture) (all []string) {
	t.Helper()
	describe := mysqlVariables
	if w.mariadb(t) {
		describe = mariadbVariables
	}
	for _, v := range describe(t, w.db) {
		if allowed[strings.ToUpper(v.name)] != "" {
			continue
		}
		for _, value := range v.values() {
			all = append(all, "SET SESSION "+v.name+"="+value)
		}
	}
	return all
}

func mariadbVariables(t *testing.T, db *sql.DB) []variable {
	t.Helper()
	return describe(t, db, "SELECT VARIABLE_NAME,VARIABLE_TYPE,COALESCE(NUMERIC_MIN_VALUE,''),COALESCE(NUMERIC_MAX_VALUE,''),COALESCE(ENUM_VALUE_LIST,'')"+
		" FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_SCOPE LIKE 'SESSION%' AND READ_ONLY='NO' ORDER BY VARIABLE_NAME")
}

// mysqlVariables finds the members of enumerations and sets by trying numbers,
// because MySQL does not list them.
func mysqlVariables(t *testing.T, db *sql.DB) []variable {
	t.Helper()
	all := describe(t, db, "SELECT VARIABLE_NAME,CASE DATA_TYPE WHEN 'String' THEN 'VARCHAR' WHEN 'Numeric' THEN 'DOUBLE' ELSE UPPER(DATA_TYPE) END,MIN_VALUE,MAX_VALUE,''"+
		" FROM performance_schema.variables_metadata WHERE VARIABLE_SCOPE LIKE 'SESSION%' ORDER BY VARIABLE_NAME")
	scratch, err := db.Conn(t.Context())
	must(t, err)
	// Close this connection, because its variables keep the last values that were tried.
	defer func() { _ = scratch.Raw(func(any) error { return sqldriver.ErrBadConn }) }()
	for i := range all {
		switch v := &all[i]; v.kind {
		case "ENUMERATION":
			v.list = accepted(t.Context(), scratch, v.name, func(i int) int { return i })
		case "SET":
			var now string
			must(t, scratch.QueryRowContext(t.Context(), "SELECT @@SESSION."+v.name).Scan(&now))
			if !strings.Contains(now, "=") {
				v.list = accepted(t.Context(), scratch, v.name, func(i int) int { return 1 << i })
				continue
			}
			v.kind, v.list = "FLAGSET", nil
			for flag := range strings.SplitSeq(now, ",") {
				name, _, _ := strings.Cut(flag, "=")
				v.list = append(v.list, name)
			}
		}
	}
	return all
}

// accepted returns which of the numbers number(0) to number(39) the server accepts for a variable.
func accepted(ctx context.Context, on *sql.Conn, name string, number func(i int) int) (all []string) {
	for i := range 40 {
		n := fmt.Sprint(number(i))
		if _, err := on.ExecContext(ctx, "SET SESSION "+name+"="+n); err == nil {
			all = append(all, n)
		}
	}
	return all
}

func describe(t *testing.T, db *sql.DB, query string) (all []variable) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Skipf("this server has no table of its variables: %v", err)
	}
	defer rows.Close()
	for rows.Next() {
		var v variable
		var list string
		must(t, rows.Scan(&v.name, &v.kind, &v.least, &v.most, &list))
		v.list = strings.Split(list, ",")
		all = append(all, v)
	}
	must(t, rows.Err())
	return all
}

// values returns the values that the tests give to the variable v, written in SQL.
func (v variable) values() (all []string) {
	quote := func(words ...string) {
		for _, w := range words {
			all = append(all, "'"+w+"'")
		}
	}
	name := strings.ToUpper(v.name)
	switch {
	case v.kind == "BOOLEAN":
		return []string{"0", "1"}
	case v.kind == "FLAGSET":
		for _, flag := range v.list {
			quote(flag+"=on", flag+"=off")
		}
	case v.kind == "SET" && v.list[0] == "1": // on MySQL, by numbers
		return append(v.list, "0")
	case v.kind == "SET":
		quote("", strings.Join(v.list, ","))
		quote(v.list...)
	case strings.HasPrefix(name, "CHARACTER_SET"):
		quote("latin1", "utf32", "ucs2", "binary", "sjis", "gbk")
	case strings.HasPrefix(name, "COLLATION"):
		quote("utf32_general_ci", "binary", "latin1_german2_ci", "utf8mb4_bin")
	case v.kind == "ENUMERATION": // on MySQL
		return v.list
	case v.kind == "ENUM" && v.list[0] != "":
		quote(v.list...)
	case name == "TIME_ZONE":
		quote("+09:30", "SYSTEM")
	case v.kind == "VARCHAR", v.kind == "ENUM":
		quote("", "MyISAM", "de_DE", "2001-01-01 00:00:00", "*")
	case v.kind == "DOUBLE" && v.least == "0": // mostly in seconds
		return []string{"0", "0.001", "1", v.most}
	default:
		return []string{v.least, "1", "2", v.most}
	}
	return all
}
