package driver

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestReadTarget(t *testing.T) {
	for text, want := range map[string]Config{
		"db:1\n":                            {"address": "db:1"},
		"redis://:a=b@db:1/3":               {"address": "redis://:a=b@db:1/3"},
		"app:p#w=@tcp(db:1)/app?timeout=1s": {"address": "app:p#w=@tcp(db:1)/app?timeout=1s"},
		"a:1,b:2":                           {"address": "a:1,b:2"},
		"address=a?x=1&y=2":                 {"address": "a?x=1&y=2"},
		"# the store\n\n address = db:1 \npassword=p=q#r": {"address": "db:1", "password": "p=q#r"},
		"password=hush": {"password": "hush"},
		`{"address":"db:1","db":3,"tls_enabled":true}`: {"address": "db:1", "db": "3", "tls_enabled": "true"},
	} {
		if got, err := ReadTarget(strings.NewReader(text)); err != nil || !maps.Equal(got, want) {
			t.Errorf("%q is read as %q, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"db:1\npassword=hush-hush", "address: db:1\npassword: hush-hush", "password: hush-hush=\naddress=db:1",
		"redis://:hush-hush@db:1?a=b\nprefix=x", "{\"password\":\"hush-hush\"", "{\"password\":[\"hush-hush\"]}",
		"a=1\n" + strings.Repeat("hush-hush\n", MaxConfigFile/10),
	} {
		if cfg, err := ReadTarget(strings.NewReader(text)); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%.100q is read as %q, %v", text, cfg, err)
		}
	}
}

// No error may show a part of the file. A value in a line "key = value" is read back unchanged.
func FuzzReadConfig(f *testing.F) {
	f.Add("# a comment\naddress = db:1\npassword=hush-hush\n", "key", "value")
	f.Add(`{"address":"db:1","count":1e3,"on":true,"password":["hush-hush"]}`, "k", "a=b")
	f.Add(`{"password":"hush-hush"`, "#", "")
	f.Add("hush-hush", "{", "}")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		for _, read := range []func() (Config, error){
			func() (Config, error) { return ReadConfig(strings.NewReader(text)) },
			func() (Config, error) { return ReadTarget(strings.NewReader(text)) },
		} {
			cfg, err := read()
			switch {
			case err != nil && !errors.Is(err, ErrConfig):
				t.Errorf("%v is not an ErrConfig", err)
			case err != nil && strings.Contains(err.Error(), "hush-hush"):
				t.Errorf("%q shows a value", err)
			case err == nil && len(cfg) > max(1, len(text)):
				t.Errorf("%q has %d keys", text, len(cfg))
			}
		}
		if value != strings.TrimSpace(value) || strings.ContainsAny(value, "\n\r") || !keyForm.MatchString(key) {
			return // this key and value cannot be written as a line
		}
		for _, read := range []func() (Config, error){
			func() (Config, error) { return ReadConfig(strings.NewReader(key + " = " + value + "\n")) },
			func() (Config, error) { return ReadTarget(strings.NewReader(key + " = " + value + "\n")) },
		} {
			if cfg, err := read(); err != nil || cfg[key] != value || len(cfg) != 1 {
				t.Errorf("%q = %q is read as %q, %v", key, value, cfg, err)
			}
		}
	})
}
