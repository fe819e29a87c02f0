package driver

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// CheckConfig must return values of the right types, or an error that shows no secret.
func FuzzConfig(f *testing.F) {
	spec := Spec{Name: "x", Keys: []Key{
		{Name: "address", Type: TypeList, Required: true}, {Name: "count", Type: TypeInt, Default: "1"},
		{Name: "on", Type: TypeBool}, {Name: "timeout", Type: TypeDuration, Default: "1s"},
		{Name: "password", Type: TypeInt, Secret: true},
	}}
	f.Add("count", "3", "not a number")
	f.Add("timeout", "-1h", "")
	f.Add("adress", "h:1,,h:2", "17")
	f.Fuzz(func(t *testing.T, key, value, password string) {
		out, err := spec.CheckConfig(Config{"address": "a", "password": password, key: value})
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Errorf("%v is not an ErrConfig", err)
			}
			if key != "password" && len(password) > 8 && !strings.Contains(key+value, password) && strings.Contains(err.Error(), password) {
				t.Errorf("%q shows the password", err)
			}
			return
		}
		_, _, _, _ = out.Int("count"), out.Bool("on"), out.Duration("timeout"), out.List("address")
		if out["timeout"] == "" || out.Duration("timeout") == 0 && out["timeout"] == time.Second.String() {
			t.Errorf("the default is not read: %q", out["timeout"])
		}
	})
}
