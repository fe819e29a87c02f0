package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Parent is the process that has started this one as a [Child].
type Parent struct {
	in *json.Decoder

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// Agent carries out, in a child, the orders of its parent.
type Agent[Order any] interface {
	// Do carries out one order of the parent. The next order waits until Do returns. Work that
	// goes on after Do has returned must end when ctx ends. Close is called after the end of ctx.
	Do(ctx context.Context, order Order)
	// Close waits for the work that goes on after Do, and ends the agent.
	Close() error
}

// Become runs this process as a child, and then exits, if the environment
// variable role is set. Otherwise it does nothing. Call it first in main or
// TestMain. It tells the parent when the function open has returned, and with which
// error. Errors of the spec and of [Agent].Close go to standard error, after the text in called.
func Become[Spec, Order any](role, called string, open func(*Parent, Spec) (Agent[Order], error)) {
	if os.Getenv(role) == "" {
		return
	}
	os.Unsetenv(role) // our own children must not take this role
	if err := serve(&Parent{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}, open); err != nil {
		fmt.Fprintln(os.Stderr, called+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve reads a spec, opens an agent with it, and then reads orders until the input ends.
func serve[Spec, Order any](p *Parent, open func(*Parent, Spec) (Agent[Order], error)) error {
	var spec Spec
	if err := p.in.Decode(&spec); err != nil {
		return err
	}
	agent, err := open(p, spec)
	if err != nil {
		p.Send(started{Error: err.Error()})
		return nil
	}
	p.Send(started{Ready: true})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		var o Order
		if p.in.Decode(&o) != nil { // the parent has ended, or wants this process to end
			cancel()
			return agent.Close()
		}
		agent.Do(ctx, o)
	}
}

// Send writes one line. It may be called from any goroutine. It ignores errors:
// if the parent no longer reads, this process ends soon.
func (p *Parent) Send(line any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(line)
}
