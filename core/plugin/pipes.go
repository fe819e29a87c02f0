package plugin

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
)

// maxHandshake bounds what is kept of the first line on standard output.
const maxHandshake = 4 << 10

// firstLine passes the first line on and drops what follows: go-plugin stops
// reading at a line that is too long for it, and a plugin would wait for ever
// for room in the pipe.
type firstLine struct {
	*os.File
	mu   sync.Mutex
	line []byte
	done bool
}

func (f *firstLine) Read(b []byte) (int, error) {
	if f.passed() {
		_, err := io.Copy(io.Discard, f.File)
		return 0, ended(err)
	}
	n, err := f.File.Read(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	line, _, over := bytes.Cut(b[:n], []byte("\n"))
	if over {
		n = len(line) + 1
	}
	f.line = append(f.line, line[:min(len(line), maxHandshake-len(f.line))]...)
	f.done = over
	if len(f.line) == maxHandshake {
		return n, io.EOF // no handshake: the start fails, which ends the process
	}
	if err != nil {
		err = ended(err)
	}
	return n, err
}

func (f *firstLine) passed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// ended is io.EOF at the end of the output, and of the time to wait for that.
func ended(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return io.EOF
	}
	return err
}

func (f *firstLine) text() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimSpace(string(f.line))
}

// closeAll closes the ends of pipes; nil ones are of pipes that did not open.
func closeAll(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}
