package postgres

import (
	"io"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
)

// FuzzNeedle checks that no error about a configuration shows a password, even
// one that a user wrote into the wrong key.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		cfg, err := Spec.CheckConfig(cfg)
		if err != nil {
			return err
		}
		if o := optionsOf(cfg); o.ListenAddress != "" && o.ListenAddress != noListening {
			if _, _, err := o.target("listen_address", o.ListenAddress); err != nil {
				return err
			}
		}
		return printDDL(cfg, io.Discard)
	})
}
