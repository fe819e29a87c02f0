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
