// Package host runs hosts as operating system processes: each wants or holds
// locks through a plugin, or a library, of its own, and can be killed or frozen
// from outside. A [Candidate] campaigns; [Callers] put load on.
//
// A process is the running binary started again, whose main (or TestMain) must
// call [CandidateMain] and [CallersMain] first.
package host

import "github.com/lockbench/lockbench/core/driver"

// Spec says through which plugin a host takes its locks.
type Spec struct {
	Backend string
	Path    string // of the plugin binary
	Config  driver.Config
	NoMTLS  bool
}
