package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
)

// Parent is the process that started this process as a [Child].
type Parent struct {
	in *json.Decoder

	mu  sync.Mutex // guards out
	out *json.Encoder
}

// Agent runs in a child process and carries out the orders of the parent process.
type Agent[Order any] interface {
	// Do carries out one order of the parent. The next order waits until Do returns. Work that Do
	// starts may go on after Do returns, but must end when ctx ends. Close is called last.
	Do(ctx context.Context, order Order)
	// Close waits for the work that Do has started, and ends the agent.
	Close() error
}

// Become runs this process as a child and exits, if the environment variable named in role is set.
// Otherwise it does nothing. Call Become first in main or TestMain. Become passes the parent's
// first line to the function open. It tells the parent that the child is ready, or sends the error
// of open. It prints any other error to standard error, with the text in called as a prefix.
func Become[Spec, Order any](role, called string, open func(*Parent, Spec) (Agent[Order], error)) {
	if os.Getenv(role) == "" {
		return
	}
	os.Unsetenv(role) // children of this process must not take this role
	if err := serve(&Parent{in: json.NewDecoder(os.Stdin), out: json.NewEncoder(os.Stdout)}, open); err != nil {
		fmt.Fprintln(os.Stderr, called+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

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

// Send writes one line to the parent. Any goroutine may call Send. Send ignores errors, because a
// parent that no longer reads has ended, and this process ends soon after its parent.
func (p *Parent) Send(line any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(line)
}
