// Command lockplugin-mysql is the plugin for MySQL and MariaDB.
package main

import (
	"github.com/lockbench/lockbench/core/plugin/serve"
	"github.com/lockbench/lockbench/plugins/mysql"
)

func main() { serve.Main(mysql.Spec) }
