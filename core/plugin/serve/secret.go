package serve

import "github.com/lockbench/lockbench/core/driver"

// secretKey reports which keys of spec are secret.
func secretKey(spec driver.Spec) func(name, value string) bool {
	return func(name, _ string) bool {
		for _, k := range spec.Keys {
			if k.Name == name {
				return k.Secret
			}
		}
		// An unknown key may be a misspelt secret.
		return true
	}
}
