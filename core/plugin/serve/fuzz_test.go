package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

// FuzzReadConfig: whatever a configuration file holds, it is read or refused,
// no error shows a value, and what can be written as a line is read so.
func FuzzReadConfig(f *testing.F) {
	f.Add("# a comment\naddress = db:1\npassword=hush-hush\n", "key", "value")
	f.Add(`{"address":"db:1","count":1e3,"on":true,"password":["hush-hush"]}`, "k", "a=b")
	f.Add(`{"password":"hush-hush"`, "#", "")
	f.Add("hush-hush", "{", "}")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		cfg, err := readConfig(strings.NewReader(text))
		switch {
		case err != nil && !errors.Is(err, driver.ErrConfig):
			t.Errorf("%v is not an ErrConfig", err)
		case err != nil && strings.Contains(err.Error(), "hush-hush") && !strings.Contains(text, `"hush-hush":`):
			t.Errorf("%q shows a value", err)
		case err == nil && len(cfg) > len(text):
			t.Errorf("%q has %d keys", text, len(cfg))
		}
		if key != strings.TrimSpace(key) || value != strings.TrimSpace(value) || strings.ContainsAny(key+value, "\n\r") ||
			key == "" || strings.ContainsAny(key[:1], "#{") || strings.Contains(key, "=") {
			return // no line of its own
		}
		if cfg, err := readConfig(strings.NewReader(key + " = " + value + "\n")); err != nil || cfg[key] != value || len(cfg) != 1 {
			t.Errorf("%q = %q is read as %q, %v", key, value, cfg, err)
		}
	})
}
