package wire

import (
	goplugin "github.com/hashicorp/go-plugin"
)

// The protocol versions. VersionUnary is lock.proto alone; in VersionFramed the
// operations go over a second socket.
const (
	VersionUnary  = 1
	VersionFramed = 2
)

// Versions are the versions that this module speaks, the preferred one last.
func Versions() []int { return []int{VersionUnary, VersionFramed} }

// Prefix comes before a backend's name in the name of its plugin binary.
const Prefix = "lockplugin-"

// A host starts a plugin with these environment variables, beside those of
// go-plugin.
const (
	EnvLifeline  = "LOCKPLUGIN_LIFELINE"   // number of the descriptor that ends with the host
	EnvHostPid   = "LOCKPLUGIN_HOST_PID"   // process id of the host
	EnvHostStart = "LOCKPLUGIN_HOST_START" // when the host started, as its /proc/PID/stat says; unset without /proc
	EnvDir       = "LOCKPLUGIN_DIR"        // directory for sockets, to remove when the host is dead

	// Files into which a plugin written in Go puts a CPU profile and an
	// execution trace of its whole life. A new process overwrites them.
	EnvCPUProfile = "LOCKPLUGIN_CPUPROFILE"
	EnvTrace      = "LOCKPLUGIN_TRACE"
)

// maxMessage bounds one message. A value is at most 64 KiB, the host splits
// a batch into messages of about maxBatch, and a List or Observe sends one
// holder a message. So an honest peer never needs 16 MiB.
const maxMessage = 16 << 20

// maxBatch and maxBatchOps bound one Batch message, in bytes and operations.
const (
	maxBatch    = 1 << 20
	maxBatchOps = 1024
)

// Handshake tells a plugin that a host started it. It is no secret.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		MagicCookieKey:   "LOCKBENCH_PLUGIN",
		MagicCookieValue: "locks-by-plugin",
	}
}
