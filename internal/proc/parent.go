package proc

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Parent is the process that has started this one as a [Child].
type Parent struct {
	in *json.Decoder

	mu  sync.Mutex // of out
	out *json.Encoder
}

// Become makes this process a child, and ends it, when it was started in that
// role; otherwise it does nothing. Call it first in main or TestMain. The error
// of run is written after what the child is called.
func Become(role, called string, run func(*Parent) error) {
	if os.Getenv(role) == "" {
		return
	}
	os.Unsetenv(role) // what we start is none
	if err := run(&Parent{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}); err != nil {
		fmt.Fprintln(os.Stderr, called+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Receive reads the next line. Its error is that there is none any more: the
// parent has ended, or wants this process to end.
func (p *Parent) Receive(line any) error { return p.in.Decode(line) }

// Send writes one line. It may be called from any goroutine.
func (p *Parent) Send(line any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Encode(line)
}
