// Package configtest is what the fuzz tests of several backends' configurations
// share.
package configtest

import (
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// Read makes a configuration of lines such as "prefix=a". Keys that would name
// files are left out.
func Read(text string) driver.Config {
	cfg := driver.Config{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.HasSuffix(key, "_file") {
			cfg[key] = value
		}
	}
	return cfg
}

// Shows reports whether err shows a secret of more than 8 bytes that stands
// nowhere in cfg but in keys for secrets, or before the "@" of an address.
func Shows(err error, cfg driver.Config, secret string) bool {
	open := ""
	for key, value := range cfg {
		open += " " + key
		if key != "address" && !strings.HasSuffix(key, "password") {
			open += " " + value
		}
	}
	_, inAddress, _ := strings.Cut(cfg["address"], secret)
	return len(secret) > 8 && strings.Contains(err.Error(), secret) && !strings.Contains(open, secret) &&
		(!strings.Contains(cfg["address"], secret) || strings.HasPrefix(inAddress, "@"))
}
