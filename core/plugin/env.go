package plugin

import (
	"os"

	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// inherited are the variables of the host that a plugin gets: what a network
// client and the Go runtime need. Everything else of the host's environment,
// where secrets often are, stays here.
var inherited = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"GODEBUG", "GOTRACEBACK", "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GORACE", "GOCOVERDIR",
	wire.EnvCPUProfile, wire.EnvTrace,
}

// environ is the environment of a plugin, without what go-plugin adds.
func environ(extra []string) []string {
	var env []string
	for _, key := range inherited {
		if v, ok := os.LookupEnv(key); ok {
			env = append(env, key+"="+v)
		}
	}
	return append(env, extra...)
}
