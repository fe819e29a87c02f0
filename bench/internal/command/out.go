package command

import (
	"io"
	"time"
)

// outBudget is how long the last lines may take to be written.
const outBudget = time.Second

// Out writes texts for people to a writer that may take them late or never: a full
// pipe that nobody reads, a terminal that Ctrl-S has stopped. A process with a
// command to end or a lock to free never waits for the writer. Texts that find 64
// others before them are dropped. It may be used from any goroutine.
type Out struct {
	texts chan string
	done  chan struct{}
}

// NewOut returns an Out on w, to be closed.
func NewOut(w io.Writer) *Out {
	o := &Out{make(chan string, 64), make(chan struct{})}
	go func() {
		defer close(o.done)
		for text := range o.texts {
			_, _ = io.WriteString(w, text) // there is no other place to say so
		}
	}()
	return o
}

// Write implements io.Writer. It neither waits nor fails.
func (o *Out) Write(text []byte) (int, error) {
	select {
	case o.texts <- string(text):
	default:
	}
	return len(text), nil
}

// Close waits until all is written, but for a second at most. Text that w has not
// taken by then is lost.
func (o *Out) Close() {
	close(o.texts)
	timer := time.NewTimer(outBudget)
	defer timer.Stop()
	select {
	case <-o.done:
	case <-timer.C:
	}
}
