package plugintest

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
	"github.com/lockbench/lockbench/internal/proc"
)

// role makes a binary that calls HostMain a host process.
const role = "LOCKBENCH_HOST_PROCESS"

// HostSpec says which plugin a host process opens.
type HostSpec struct {
	Plugin      string // name of the backend
	Path        string // of its binary; "" finds it by name
	Config      driver.Config
	NoMTLS      bool
	OnHostDeath plugin.Policy
	Label       string // "" is core's default
}

// command is one line on a host process's standard input.
type command struct {
	Op      string        `json:"op"` // acquire, enqueue, state, release, plugin
	Name    string        `json:"name,omitempty"`
	TTL     time.Duration `json:"ttl_ns,omitempty"`
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	AtLeast time.Duration `json:"at_least_ns,omitempty"`
}

// reply is one line on its standard output, for each command.
type reply struct {
	Error []byte `json:"error,omitempty"` // a lockpb.Error, which keeps identities
	Token uint64 `json:"token,omitempty"`
	Valid bool   `json:"valid,omitempty"`
	Done  bool   `json:"done,omitempty"`
	Cause string `json:"cause,omitempty"`
	Pid   int    `json:"pid,omitempty"` // of the plugin process; 0: it is down
}

func (r *reply) setError(err error) {
	if err == nil {
		return
	}
	b, marshalErr := proto.Marshal(wire.EncodeError(err, nil))
	if marshalErr != nil {
		panic(marshalErr) // the text was made valid
	}
	r.Error = b
}

func (r *reply) err() error {
	if len(r.Error) == 0 {
		return nil
	}
	var e lockpb.Error
	if err := proto.Unmarshal(r.Error, &e); err != nil {
		return fmt.Errorf("reply of the host process: %w", err)
	}
	return wire.DecodeError(&e)
}

// HostMain makes this process a host process and ends it, when it was started
// as one; otherwise it does nothing. Call it first in main or TestMain.
func HostMain() { proc.Become(role, "host process", openHost) }
