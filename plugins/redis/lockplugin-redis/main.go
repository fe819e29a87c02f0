// Command lockplugin-redis is the redis backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/redis"
)

func main() {
	serve.Main(redis.Spec)
}
