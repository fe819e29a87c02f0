// Command etcd is the etcd server of the Go module that go.mod names, for
// machines whose package archive has an older one or none. It is a module of
// its own, so that lockbench's go.mod stays free of the server's
// dependencies. From the root of the repository:
//
//	go -C tools/etcd build -o ../../bin/etcd .
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
