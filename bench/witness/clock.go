package witness

import "github.com/lockbench/lockbench/bench/load"

// Now is the time by which a witness and those that judge it go.
func Now() int64 { return load.MachineTime() }
