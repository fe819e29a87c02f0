// Command lockplugin-redlock is the plugin for locks on a majority of Redis or Valkey masters.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/redlock"
)

func main() {
	serve.Main(redlock.Spec)
}
