package env

import (
	"errors"
	"fmt"
	"os"
)

// Scratch is a temporary directory that goes with the process that owns it,
// whatever the end of that is. Its methods may be called from any goroutine.
type Scratch struct {
	dir   string
	claim *os.File
	watch *watcher
}

// NewScratch makes one that is empty, but for a file of its own.
func NewScratch() (*Scratch, error) {
	dir, claim, err := makeDir()
	if err != nil {
		return nil, fmt.Errorf("env: %w", err)
	}
	w, err := startWatcher(dir, claim)
	if err != nil {
		return nil, errors.Join(err, claim.Close(), os.RemoveAll(dir))
	}
	return &Scratch{dir: dir, claim: claim, watch: w}, nil
}

// Dir is its path.
func (s *Scratch) Dir() string { return s.dir }

// Close removes it. It is called once.
func (s *Scratch) Close() error {
	return errors.Join(s.watch.close(), s.claim.Close(), os.RemoveAll(s.dir))
}
