package redisnode

import (
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"db1":                          {Network: "tcp", Addr: "db1:6379", DB: -1},
		"db1:7000":                     {Network: "tcp", Addr: "db1:7000", DB: -1},
		"[::1]":                        {Network: "tcp", Addr: "[::1]:6379", DB: -1},
		"[::1]:7000":                   {Network: "tcp", Addr: "[::1]:7000", DB: -1},
		"redis://db1":                  {Network: "tcp", Addr: "db1:6379", DB: -1},
		"redis://u:p%40ss@db1:7000/3":  {Network: "tcp", Addr: "db1:7000", Username: "u", Password: "p@ss", DB: 3},
		"rediss://:secret@db1":         {Network: "tcp", Addr: "db1:6379", TLS: true, Password: "secret", DB: -1},
		"unix:///run/redis.sock":       {Network: "unix", Addr: "/run/redis.sock", DB: -1},
		"unix://u:p@/run/redis.s?db=2": {Network: "unix", Addr: "/run/redis.s", Username: "u", Password: "p", DB: 2},
	} {
		got, err := ParseAddress(text, 6379)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestBadAddressesShowNoSecret(t *testing.T) {
	for _, text := range []string{
		"", ":6379", "db1:", "db1:0", "db1:65536", "db1:port", "a:b:c", "db 1",
		"redis://:s3cret@db1:port", "redis://u:s3cret%@db1", "redis://u:s3cret@", "redis://u:s3cret@db1:99999/0",
		"redis://u:s3cret@db1/x", "redis://u:s3cret@db1/-1", "redis://u:s3cret@db1?db=1", "http://u:s3cret@db1",
		"unix://u:s3cret@host/run/s", "unix://u:s3cret@", "unix:///s?db=s3cret", "redis://u:s3c/ret@db1", "://u:s3cret@x", "u:s3cret@db1:6379",
	} {
		_, err := ParseAddress(text, 6379)
		if !errors.Is(err, driver.ErrConfig) {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if msg := err.Error(); strings.Contains(msg, "s3c") || !strings.Contains(msg, "address") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzAddress checks that ParseAddress either refuses an address or returns one that can be dialled
// and has a host.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"h:1", "redis://u:p@h/2", "rediss://h:9", "unix:///s?db=1", "[::1]", "0]x", "redis://:p@", "h:99999", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text, 6379)
		switch {
		case err != nil && !errors.Is(err, driver.ErrConfig):
			t.Errorf("%q: %v is not an ErrConfig", text, err)
		case err != nil:
		case a.Addr == "" || a.DB < -1:
			t.Errorf("%q is read as %+v", text, a)
		case a.Network == "tcp":
			if host, port, err := net.SplitHostPort(a.Addr); err != nil || host == "" || port == "" {
				t.Errorf("%q is read as %q: %v", text, a.Addr, err)
			}
		}
	})
}

// FuzzPassword checks that every password written into a URL is read back from
// it, and appears in no error.
func FuzzPassword(f *testing.F) {
	f.Add("redis", "user", "hush-hush", "db:7000", "/3")
	f.Add("rediss", "", "%/@:#?", "db:port", "/x?db=1")
	f.Add("unix", "u", "hush-hush", "", "/run/s")
	f.Fuzz(func(t *testing.T, scheme, user, password, host, rest string) {
		if strings.Contains(host, "@") || rest != "" && rest[0] != '/' {
			t.Skip("no host, no path")
		}
		text := scheme + "://" + url.UserPassword(user, password).String() + "@" + host + rest
		a, err := ParseAddress(text, 6379)
		if err == nil && (a.Username != user || a.Password != password) {
			t.Errorf("%q has %q and %q, want %q and %q", text, a.Username, a.Password, user, password)
		}
		if err != nil && len(password) > 8 && strings.Contains(err.Error(), password) && !strings.Contains(scheme+host+rest, password) {
			t.Errorf("%q shows the password", err)
		}
	})
}
