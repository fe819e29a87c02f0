// Command lockplugin-nats is the example backend on NATS JetStream KV as a plugin.
package main

import (
	nats "github.com/lockbench/lockbench/examples/backend-nats"

	"github.com/lockbench/lockbench/core/plugin/serve"
)

func main() {
	serve.Main(nats.Spec)
}
