// Package configtest has helpers for fuzz tests of the configurations of several
// backends.
package configtest

import (
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// Read makes a configuration from lines such as "prefix=a". It omits keys that
// would name files.
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
