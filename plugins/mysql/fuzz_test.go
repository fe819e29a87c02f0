package mysql

import (
	sqldriver "database/sql/driver"
	"encoding/hex"
	"io"
	"strings"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
)

// FuzzConfig: whatever a configuration says, it is refused in words that do
// not show a password, or is one with which the driver can connect.
func FuzzConfig(f *testing.F) {
	f.Add("root:hush-hush@tcp(db:3306)/app?loc=Local", "", "prefix=a_\nconnections=0")
	f.Add("u:p@unix(/run/s)/a`b?sql_mode=''", "hush-hush", "tls_enabled=true\nwait_connections=-5")
	f.Add("tcp(db)/", "", "timeout=1h\nusername=x'y")
	f.Add("hush-hush", "", "")
	f.Fuzz(func(t *testing.T, address, password, text string) {
		cfg := configtest.Read(text)
		cfg["address"], cfg["password"] = address, password
		c, o, err := configured(cfg)
		if err == nil {
			if c.DBName == "" || !c.InterpolateParams || !c.MultiStatements || !c.ClientFoundRows || c.ParseTime || len(c.Params) > 0 {
				t.Errorf("%q is read as %+v", address, c)
			}
			if strings.ContainsAny(strings.Trim(tableName(o.Prefix), "`"), "`'\\") {
				t.Errorf("%q makes the table %s", text, tableName(o.Prefix))
			}
			return
		}
		for _, secret := range []string{address, password, "hush-hush"} {
			if len(secret) > 8 && strings.Contains(err.Error(), secret) && !strings.Contains(text+" "+errAddress.Error(), secret) {
				t.Errorf("%q shows %q", err, secret)
			}
		}
	})
}

// FuzzNeedle: no error about a configuration shows a password, wherever in it
// somebody wrote it.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		_, _, err := configured(cfg)
		return err
	})
}

// configured does what opening does before it connects.
func configured(cfg driver.Config) (*mysqldriver.Config, Options, error) {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return nil, Options{}, err
	}
	if err := printDDL(cfg, io.Discard); err != nil {
		return nil, Options{}, err
	}
	o := optionsOf(cfg)
	if _, _, err := o.connector(); err != nil {
		return nil, o, err
	}
	c, err := o.target()
	return c, o, err
}

// FuzzRow: whatever stands in a row, reading it ends, a holder is one whose
// lease has not ended, and nobody is waited for who is not in the queue.
func FuzzRow(f *testing.F) {
	f.Add([]byte("n"), "o-1", "label", int64(7), int64(1_000_000), int64(2_000_000), ",o-2.17,o-3.18", byte(0))
	f.Add([]byte{}, "", "", int64(-1), int64(-1), int64(1<<62), ",", byte(1))
	f.Add([]byte{0xff}, "o", "\x1b[31m", int64(0), int64(1<<62), int64(-5), "no comma.x", byte(2))
	f.Fuzz(func(t *testing.T, name []byte, owner, label string, token, left, ttl int64, queue string, as byte) {
		number := func(n int64) sqldriver.Value {
			switch as % 4 {
			case 1:
				return uint64(n)
			case 2:
				return []byte(label)
			case 3:
				return nil
			}
			return n
		}
		r := readRow([]sqldriver.Value{name, number(token), nil, []byte(owner), number(token), label, number(left), number(ttl), []byte(queue), number(ttl)})
		h := r.holder()
		if h.Held() && (h.Name != string(name) || h.Owner == "" || h.TTL <= 0 || h.TTL%time.Millisecond != 0 || h.Waiters < 0) {
			t.Errorf("%+v is held by %+v", r, h)
		}
		next := r.next()
		if next.Held() && (next.TTL <= 0 || h.Held() || next.Owner != "" && !strings.Contains(queue, next.Owner+".")) {
			t.Errorf("%+v is kept for %+v", r, next)
		}
	})
}

// FuzzBytes: a name stands in a statement as a literal that cannot end early,
// and two names never as the same one. An owner stands there as it is, if at
// all.
func FuzzBytes(f *testing.F) {
	for _, s := range []string{"a", "a ", "A", "'; DROP TABLE locks; --", "\x00", "é", "\\'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		var statement text
		literal := statement.bytes(name).String()
		digits, ok := strings.CutPrefix(literal, "x'")
		if ok {
			digits, ok = strings.CutSuffix(digits, "'")
		}
		back, err := hex.DecodeString(digits)
		if !ok || err != nil || string(back) != name {
			t.Errorf("%q stands as %q", name, literal)
		}
		if valid(driver.Request{Name: "n", Owner: name}) == nil && strings.ContainsAny(name, "'\\\"`;, .%\x00") {
			t.Errorf("%q is taken for an owner", name)
		}
	})
}
