package wire

import (
	goplugin "github.com/hashicorp/go-plugin"
)

// These are the protocol versions. VersionUnary uses only the gRPC service of lock.proto. In
// VersionFramed, a second socket carries the operations.
const (
	VersionUnary  = 1
	VersionFramed = 2
)

// Versions returns the protocol versions that this module supports. The last one is preferred.
func Versions() []int { return []int{VersionUnary, VersionFramed} }

// Prefix followed by the name of a backend is the name of that backend's plugin binary.
const Prefix = "lockplugin-"

// A host starts a plugin with these environment variables, in addition to those of go-plugin.
const (
	EnvLifeline  = "LOCKPLUGIN_LIFELINE"   // number of the descriptor of a pipe that ends when the host dies
	EnvHostPid   = "LOCKPLUGIN_HOST_PID"   // process id of the host
	EnvHostStart = "LOCKPLUGIN_HOST_START" // start time of the host as in its /proc/PID/stat; unset without /proc
	EnvDir       = "LOCKPLUGIN_DIR"        // directory for sockets; a plugin that ends without its host removes it

	// These variables name files into which a plugin written in Go writes a CPU profile
	// and an execution trace of its whole life. A new process overwrites the files.
	EnvCPUProfile = "LOCKPLUGIN_CPUPROFILE"
	EnvTrace      = "LOCKPLUGIN_TRACE"
)

// maxMessage bounds a message, in bytes. Most messages are far smaller: a value is at most 64 KiB,
// a batch is split into parts of about maxBatch, and List and Observe send one holder per message.
const maxMessage = 16 << 20

// maxBatch bounds the bytes of one Batch message. maxBatchOps bounds its operations.
const (
	maxBatch    = 1 << 20
	maxBatchOps = 1024
)

// Handshake returns the values that tell a plugin that a host started it. They are not secret.
func Handshake() goplugin.HandshakeConfig {
	return goplugin.HandshakeConfig{
		MagicCookieKey:   "LOCKBENCH_PLUGIN",
		MagicCookieValue: "locks-by-plugin",
	}
}
