// Command lockplugin-flock is the flock backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"

	flock "github.com/lockbench/lockbench/examples/backend-flock"
)

func main() { serve.Main(flock.Spec) }
