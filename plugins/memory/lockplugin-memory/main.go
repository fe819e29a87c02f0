// Command lockplugin-memory is the memory backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/memory"
)

func main() {
	serve.Main(memory.Spec)
}
