package bench

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzSecret: in whatever form a password stands in an address, it is seen to
// be one, and never shown.
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
		shown := ShowAddress(address)
		if !HasSecret(address) || strings.Contains(shown, written) && !strings.Contains("h1:6379,redis://"+host+",redis://h2 tcp("+host+")/db .../0", written) {
			t.Errorf("%q is shown as %q, and has a secret: %t", address, shown, HasSecret(address))
		}
	})
}
