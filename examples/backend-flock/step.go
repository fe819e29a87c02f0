package flock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

const (
	recordPrefix = "lock-"
	barsSuffix   = ".bars"
	newSuffix    = ".new"
)

// record is what a file says of one lock. Times are since boot.
type record struct {
	Boot   string
	Prefix string
	Name   []byte // names may hold bytes that JSON text cannot
	Owner  string // "" when nobody holds it
	Label  string
	Value  []byte
	Token  uint64
	Ends   time.Duration
}

// step is an operation in progress: a record and the exclusive lock on its
// stripe. Names share 256 stripes, whose files stay: each holds the last token
// that was minted under it, and beside it are the owners that were withdrawn. So
// a record goes with its lease, and nothing is left of a name.
type step struct {
	record
	now    time.Duration
	stripe *os.File
}

// step runs change on the record of name, alone on this machine, and saves what
// it made of it. An error of change is returned as it is, and nothing is saved.
func (b *backend) step(ctx context.Context, operation, name string, change func(*step) error) error {
	if b.closed.Load() {
		return driver.ErrClosed
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(b.prefix), b.prefix, name))
	path := filepath.Join(b.dir, fmt.Sprintf("%s%x", recordPrefix, sum))
	stripe, err := lockStripe(ctx, filepath.Join(b.dir, fmt.Sprintf("stripe-%x", sum[:1])))
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("flock: %s %q: %w: %w", operation, name, driver.ErrDenied, err)
	}
	if err != nil {
		return fmt.Errorf("flock: %s %q: %w: %w: %w", operation, name, driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	defer stripe.Close() // ends the flock
	s := step{stripe: stripe, record: record{Boot: b.boot, Prefix: b.prefix, Name: []byte(name)}}
	before, err := s.load(path)
	if err == nil {
		err = change(&s)
	}
	if err == nil {
		err = s.save(path, before)
	}
	switch {
	case err == nil, errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrWithdrawn):
		return err
	}
	return fmt.Errorf("flock: %s %q: %w: %w", operation, name, driver.ErrUnavailable, err)
}

// lockStripe opens a stripe and takes its lock. It asks again and again, because
// flock(2) cannot be cancelled: the holder may be a process that was stopped.
func lockStripe(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		}
	}
	if err != nil {
		return nil, err
	}
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil && ctx.Err() == nil:
			return f, nil
		case err == nil:
			err = ctx.Err()
		case errors.Is(err, syscall.EWOULDBLOCK), errors.Is(err, syscall.EINTR):
			select {
			case <-time.After(pause):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		f.Close()
		return nil, err
	}
}

// load reads the record, without what is over, and returns its text.
func (s *step) load(path string) (text []byte, err error) {
	if s.now, err = sinceBoot(); err != nil {
		return nil, err
	}
	text, err = os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if r.Boot != s.Boot {
		return text, nil
	}
	s.record = r
	if s.Owner != "" && s.now >= s.Ends {
		s.free()
	}
	return text, nil
}

// save replaces the record by a rename, so that a process that is killed
// leaves the old one or the new one.
func (s *step) save(path string, before []byte) error {
	if s.Owner == "" {
		if before == nil {
			return nil
		}
		return os.Remove(path)
	}
	text, err := json.Marshal(s.record)
	if err != nil || bytes.Equal(text, before) {
		return err
	}
	return replace(path, text)
}

// replace needs no name of its own for the new file: the stripe is ours.
func replace(path string, text []byte) error {
	if err := os.WriteFile(path+newSuffix, text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+newSuffix, path)
}

// mint returns the next token and keeps it in the stripe. All are written with
// the same width, so that one write replaces the one before.
func (s *step) mint() (uint64, error) {
	var text [20]byte
	last := uint64(0)
	if n, _ := s.stripe.ReadAt(text[:], 0); n == len(text) {
		var err error
		if last, err = strconv.ParseUint(string(text[:]), 10, 64); err != nil {
			return 0, fmt.Errorf("%s holds no token: %w", s.stripe.Name(), err)
		}
	}
	token := max(last+1, uint64(max(0, time.Now().UnixMicro())))
	_, err := s.stripe.WriteAt(fmt.Appendf(nil, "%020d", token), 0)
	return token, err
}

func (s *step) free() { s.Owner, s.Label, s.Value, s.Token, s.Ends = "", "", nil, 0, 0 }

func (s *step) holder() driver.Holder {
	if s.Owner == "" {
		return driver.Holder{}
	}
	left := (s.Ends - s.now + time.Millisecond - 1).Truncate(time.Millisecond)
	return driver.Holder{
		Name: string(s.Name), Owner: s.Owner, Label: s.Label, Value: s.Value, Token: s.Token, TTL: left, Waiters: -1,
	}
}
