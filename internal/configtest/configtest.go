// Package configtest has helpers for tests of backends' configurations.
package configtest

import (
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// Read makes a configuration from lines such as "prefix=a". It omits keys whose values name files,
// so that no fuzz test reads a file.
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
