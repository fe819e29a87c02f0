package kinds

import (
	"errors"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

func TestRoute(t *testing.T) {
	via := func(address string) (string, error) { return "proxy-of-" + address, nil }
	for address, want := range map[string]string{
		"a:1":                            "proxy-of-a:1",
		"a:1, b:2":                       "proxy-of-a:1,proxy-of-b:2",
		"redis://u:p@a:1/0?x=y":          "redis://u:p@proxy-of-a:1/0?x=y",
		"http://a:1,http://b:2":          "http://proxy-of-a:1,http://proxy-of-b:2",
		"u:p@tcp(a:1)/db?charset=a,b":    "u:p@tcp(proxy-of-a:1)/db?charset=a,b",
		"a":                              "",
		"rediss://a:1":                   "",
		"https://a:1":                    "",
		"u:p@unix(/run/mysqld.sock)/db?": "",
	} {
		cfg, err := Route("another", driver.Config{"address": address, "prefix": "x"}, via)
		if want == "" {
			if !errors.Is(err, ErrNoRoute) {
				t.Errorf("%s: %v, %v", address, cfg, err)
			}
			continue
		}
		if err != nil || cfg["address"] != want || cfg["prefix"] != "x" {
			t.Errorf("%s becomes %v, %v", address, cfg, err)
		}
	}
	if _, err := Route("another", driver.Config{"address": "a:1", "tls_enabled": "true"}, via); !errors.Is(err, ErrNoRoute) {
		t.Errorf("with TLS: %v", err)
	}
}
