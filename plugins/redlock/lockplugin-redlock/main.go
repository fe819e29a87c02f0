// Command lockplugin-redlock is the redlock backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/redlock"
)

func main() {
	serve.Main(redlock.Spec)
}
