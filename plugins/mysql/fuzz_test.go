package mysql

import (
	"io"
	"strings"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
)

// FuzzConfig checks that every configuration either lets the driver connect or
// is refused, with an error that shows no password.
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

// FuzzNeedle checks that no error about a configuration shows a password, even
// if the password is in the wrong place of the configuration.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		_, _, err := configured(cfg)
		return err
	})
}

// configured does the steps of Open that come before the first connection.
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
