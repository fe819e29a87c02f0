package command

import (
	"io"
	"time"
)

// outBudget is the time limit for Close to write the last texts.
const outBudget = time.Second

// Out writes texts for people to a writer that may block, such as a full pipe without a reader or a
// terminal that Ctrl-S has stopped. A process that must end a command or free a lock never waits
// for the writer. If 64 texts wait to be written, Out drops the next one. Any goroutine may use an
// Out.
type Out struct {
	texts chan string
	done  chan struct{}
}

// NewOut returns an Out that writes to w. The caller must close it.
func NewOut(w io.Writer) *Out {
	o := &Out{make(chan string, 64), make(chan struct{})}
	go func() {
		defer close(o.done)
		for text := range o.texts {
			_, _ = io.WriteString(w, text) // there is no other place to report an error
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

// Close waits until all texts are written, but at most one second. Text that the writer has not
// accepted by then is lost.
func (o *Out) Close() {
	close(o.texts)
	select {
	case <-o.done:
	case <-time.After(outBudget):
	}
}
