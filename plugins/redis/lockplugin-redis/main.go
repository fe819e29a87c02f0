// Command lockplugin-redis is the plugin for Redis and Valkey.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/redis"
)

func main() {
	serve.Main(redis.Spec)
}
