//go:build unix

package fence

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// File is a file that refuses a write with a stale token. All its writers must be on one machine.
// The file Path + ".token" holds the highest token. Any number of File values, in any number of
// processes, may guard the same path.
type File struct {
	Path string
}

// Write replaces the file's content if token is not stale. From the check until the content is
// replaced, Write holds an exclusive lock on the file with the token. Write replaces the content by
// a rename, so a reader sees either the old content or the new content.
func (f File) Write(token uint64, data []byte) error {
	return f.guarded(token, func() error { return f.replace(data) })
}

// Raise makes every lower token stale, without writing to the file at Path.
func (f File) Raise(token uint64) error {
	return f.guarded(token, func() error { return nil })
}

func (f File) guarded(token uint64, write func() error) (err error) {
	guard, err := os.OpenFile(f.Path+".token", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	defer func() { err = errors.Join(err, guard.Close()) }() // Close also unlocks the file
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("fence: lock %s: %w", guard.Name(), err)
	}
	highest, err := readToken(guard)
	if err != nil {
		return err
	}
	if err := compare(f.Path, token, highest); err != nil {
		return err
	}
	if token > highest {
		if err := writeToken(guard, token); err != nil {
			return err
		}
	}
	return write()
}

// tokenWidth is the number of decimal digits of the largest token. writeToken pads every token to
// this width, so that it overwrites the whole previous token.
const tokenWidth = 20

func readToken(guard *os.File) (uint64, error) {
	text := make([]byte, tokenWidth)
	n, err := guard.ReadAt(text, 0)
	switch {
	case n == 0 && err == io.EOF:
		return 0, nil // the file was just created
	case n < tokenWidth && err == io.EOF:
		return 0, fmt.Errorf("fence: %s is cut off: %w", guard.Name(), err)
	case n < tokenWidth:
		return 0, fmt.Errorf("fence: read the highest token: %w", err)
	}
	token, err := strconv.ParseUint(strings.TrimLeft(string(text), "0"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("fence: %s holds no token: %w", guard.Name(), err)
	}
	return token, nil
}

func writeToken(guard *os.File, token uint64) error {
	if _, err := guard.WriteAt(fmt.Appendf(nil, "%0*d", tokenWidth, token), 0); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	if err := guard.Sync(); err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	return nil
}

func (f File) replace(data []byte) error {
	mode := fs.FileMode(0o644)
	if info, err := os.Stat(f.Path); err == nil {
		mode = info.Mode().Perm()
	}
	tmp, err := os.CreateTemp(filepath.Dir(f.Path), filepath.Base(f.Path)+".*")
	if err != nil {
		return fmt.Errorf("fence: %w", err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.Path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("fence: replace %s: %w", f.Path, err), os.Remove(tmp.Name()))
	}
	return nil
}
