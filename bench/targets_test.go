package bench

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/configtest"
)

// FuzzTargetNeedle checks that no error message about a target or its configuration contains the
// password. This must hold even if the target has a wrong form.
func FuzzTargetNeedle(f *testing.F) {
	for i := range configtest.Haystacks {
		f.Add(uint(i), uint(0), byte(0))
		f.Add(uint(i), uint(i), byte('='))
	}
	f.Add(uint(1), uint(30), byte('@')) // password=@ names a file
	file := filepath.Join(f.TempDir(), "target")
	f.Fuzz(func(t *testing.T, form, at uint, sign byte) {
		text := configtest.Mutate(configtest.Haystacks[form%uint(len(configtest.Haystacks))], at, sign)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flags := range []Servers{
			{Targets: []string{"redis=@" + file}}, {Targets: []string{"redis=" + text}}, {Targets: []string{text}},
			{Config: []string{text}}, {Config: []string{"redis." + text}}, {Targets: []string{"mysql=@" + file}, Config: []string{"redis.a=" + text}},
		} {
			if len(flags.Targets) > 0 {
				if _, value, _ := strings.Cut(flags.Targets[0], "="); strings.HasPrefix(value, "@") && value != "@"+file {
					continue // the target names a file
				}
			}
			var shown strings.Builder
			err := flags.read(&shown)
			configtest.Hides(t, text, err)
			if strings.Contains(shown.String(), configtest.Needle) {
				t.Errorf("%q: %s", text, shown.String())
			}
		}
	})
}

// A password on the command line causes a warning, but the path of a password file does not.
func TestPasswordAmongArguments(t *testing.T) {
	for arg, warned := range map[string]bool{
		"redis.password=" + configtest.Needle: true, "redis.sentinel_password=" + configtest.Needle: true,
		"redis.password_file=/run/redis": false, "redis.prefix=app:": false,
	} {
		var stderr strings.Builder
		s := Servers{Config: []string{arg}}
		if err := s.read(&stderr); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(stderr.String(), "warning: "); got != warned || strings.Contains(stderr.String(), configtest.Needle) {
			t.Errorf("%s: %q", arg, &stderr)
		}
	}
}

func TestShownAddress(t *testing.T) {
	for _, tt := range []struct {
		address, shown string
		secret         bool
	}{
		{"127.0.0.1:6379", "127.0.0.1:6379", false},
		{"a:1, b:2", "a:1,b:2", false},
		{"redis://h:1/0", "redis://h:1/0", false},
		{"redis://app@h:1", "redis://h:1", false},
		{"redis://app:hush@h:1", "redis://h:1", true},
		{"redis://:hush@h:1", "redis://h:1", true},
		{"redis://:hu@sh@h:1", "redis://h:1", true},
		{"redis://h:1?password=hush", "redis://h:1", true},
		{"root:hush@tcp(h:3306)/db", "tcp(h:3306)/db", true},
		{"unix:///run/redis.sock", "unix:///run/redis.sock", false},
		{"a:1,:hush@b:2", "b:2", true}, // "1,:hush" may be the password of user a
	} {
		if got := shownAddress(tt.address); got != tt.shown || strings.Contains(got, "hush") {
			t.Errorf("shownAddress(%q) = %q, want %q", tt.address, got, tt.shown)
		}
		if got := hasSecret(tt.address); got != tt.secret {
			t.Errorf("hasSecret(%q) = %v", tt.address, got)
		}
	}
}

func FuzzSecret(f *testing.F) {
	f.Add("user", "hush-hush", "db:3306", byte(0))
	f.Add("", "a,b?c@d:e/f", "[::1]", byte(1))
	f.Add("u", "x,redis", "h", byte(2))
	f.Add("u", "p@ss&", "h", byte(3))
	f.Fuzz(func(t *testing.T, user, password, host string, form byte) {
		if password == "" || strings.ContainsAny(user, ":,") || strings.ContainsAny(host, "@?,") || strings.Contains(password, "://") || strings.Contains(user, "://") {
			t.Skip("no address of ours, or one whose parts nobody can tell")
		}
		written, address := password, ""
		switch form % 4 {
		case 0:
			address = user + ":" + password + "@tcp(" + host + ")/db?timeout=1s"
		case 1:
			written = strings.TrimPrefix(url.UserPassword("", password).String(), ":")
			address = "redis://" + url.PathEscape(user) + ":" + written + "@" + host + "/0"
		case 2:
			address = "h1:6379,redis://" + user + ":" + password + "@" + host + ",redis://h2"
		case 3:
			written = url.QueryEscape(password)
			address = "redis://" + host + "?password=" + written
		}
		shown := shownAddress(address)
		if !hasSecret(address) || strings.Contains(shown, written) && !strings.Contains("h1:6379,redis://"+host+",redis://h2 tcp("+host+")/db .../0", written) {
			t.Errorf("%q is shown as %q, and has a secret: %t", address, shown, hasSecret(address))
		}
	})
}
