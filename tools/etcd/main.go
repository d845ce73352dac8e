// SPDX-License-Identifier: Apache-2.0

// The etcd server, from its published module: tests of elections need a real server.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
