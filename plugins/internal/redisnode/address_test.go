package redisnode

import (
	"errors"
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
		"unix://u:s3cret@host/run/s", "unix://u:s3cret@", "unix:///s?db=s3cret", "redis://u:s3c/ret@db1", "://u:s3cret@x",
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

// FuzzAddress: an address is refused, or is one that can be dialled; it is
// never read as something with an empty host.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"h:1", "redis://u:p@h/2", "rediss://h:9", "unix:///s?db=1", "[::1]", "redis://:p@", "h:99999", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAddress(text, 6379)
		if err == nil && a.Addr == "" {
			t.Errorf("%q is read as %+v", text, a)
		}
	})
}
