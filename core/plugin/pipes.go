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

// firstLine keeps the first line that is read through it.
type firstLine struct {
	*os.File
	mu   sync.Mutex
	line []byte
	done bool
}

func (f *firstLine) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		line, _, ended := bytes.Cut(b[:n], []byte("\n"))
		f.line = append(f.line, line[:min(len(line), maxHandshake-len(f.line))]...)
		f.done = ended || len(f.line) == maxHandshake
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

func (f *firstLine) text() string {
	if f == nil {
		return ""
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.TrimSpace(string(f.line))
}

// pipes opens pipes and keeps the first error.
type pipes struct {
	all []*os.File
	err error
}

func (p *pipes) open() (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		p.err = err
		return nil, nil
	}
	p.all = append(p.all, r, w)
	return r, w
}

func (*pipes) close(files ...*os.File) {
	for _, f := range files {
		f.Close()
	}
}
