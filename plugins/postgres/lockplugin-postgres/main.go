// Command lockplugin-postgres is the plugin for PostgreSQL.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/postgres"
)

func main() { serve.Main(postgres.Spec) }
