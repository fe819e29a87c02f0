// Command lockplugin-etcd is the etcd backend as a plugin.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/etcd"
)

func main() {
	serve.Main(etcd.Spec)
}
