// Command lockplugin-postgres is the postgres backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/postgres"
)

func main() { serve.Main(postgres.Spec) }
