// Command lockplugin-postgres is the postgres backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"

	postgres "github.com/lockbench/lockbench/examples/backend-postgres"
)

func main() { serve.Main(postgres.Spec) }
