// Command etcd is the etcd server, in the version that its go.mod names. Build it if your system's
// packages have an older etcd or none. It is a separate module, to keep the server's dependencies
// out of lockbench's go.mod. Run this in the root of the repository:
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
