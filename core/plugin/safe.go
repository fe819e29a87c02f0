package plugin

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	othersWrite fs.FileMode = 0o002
	// maxLinks bounds the symbolic links that checkSafe follows in one path. Linux has the same limit.
	maxLinks = 40
)

// checkSafe returns an error for a binary that any user of this machine could replace. checkSafe
// follows the path as the kernel does, through every directory and every symbolic link. It refuses
// a path through a directory to which any user may write, with one exception. In a sticky directory
// such as /tmp, the path's next element may be a directory of this user or of root, because no
// other user can rename it. Apart from this exception, checkSafe ignores the owners of files.
func checkSafe(path string) error {
	var done []string // the elements of path followed so far, with links resolved
	rest := parts(path)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case ".":
			continue
		case "..":
			done = done[:max(0, len(done)-1)]
			continue
		}
		dir := "/" + filepath.Join(done...)
		info, err := os.Lstat(filepath.Join(dir, part))
		if err != nil {
			return err
		}
		if err := notForOthers(dir, info); err != nil {
			return err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = append(done, part)
			continue
		}
		target, err := os.Readlink(filepath.Join(dir, part))
		if err != nil {
			return err
		}
		if links++; links > maxLinks {
			return &fs.PathError{Op: "follow", Path: path, Err: syscall.ELOOP}
		}
		if filepath.IsAbs(target) {
			done = nil
		}
		rest = append(parts(target), rest...)
	}
	binary := "/" + filepath.Join(done...)
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	if info.Mode()&othersWrite != 0 {
		return replaceable{binary, info.Mode()}
	}
	return nil
}

// parts returns the elements of a path. Note: do not use filepath.Clean. It would remove "a/..",
// but if a is a symbolic link, "a/.." is not the directory that contains a.
func parts(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

func notForOthers(dir string, entry fs.FileInfo) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode()&othersWrite == 0 {
		return nil
	}
	own, ok := entry.Sys().(*syscall.Stat_t)
	if entry.IsDir() && info.Mode()&fs.ModeSticky != 0 && ok && (own.Uid == 0 || int(own.Uid) == os.Geteuid()) {
		return nil
	}
	return replaceable{dir, info.Mode()}
}

type replaceable struct {
	path string
	mode fs.FileMode
}

func (r replaceable) Error() string {
	return fmt.Sprintf("any user may write to %s (%v)", r.path, r.mode)
}

func fileReason(err error) error {
	var unsafe replaceable
	switch {
	case errors.As(err, &unsafe):
		return ErrUnsafe
	case errors.Is(err, fs.ErrNotExist):
		return ErrNotFound
	case exhausted(err):
		return ErrExhausted
	}
	return ErrNotExecutable
}

// exhausted reports whether a resource ran out. In a gRPC error, only the text names the cause.
func exhausted(err error) bool {
	causes := []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT}
	return slices.ContainsFunc(causes, func(cause syscall.Errno) bool {
		return errors.Is(err, cause) || strings.Contains(err.Error(), cause.Error())
	})
}

// verify checks that the binary is executable, that its path is safe, and that it gives no extra
// privileges. If there is a checksum file, verify compares the binary's checksum with the file.
// Note: a user who can replace the binary could do so between this check and the start, so the
// whole path must be safe. It would not help to execute the file that verify has opened, because a
// script's interpreter opens the script again.
func (l *launcher) verify() error {
	err := checkFile(l.path)
	if err == nil {
		err = checkSafe(l.path)
	}
	if err != nil {
		return l.failed(fileReason(err), err)
	}
	if err := checkPrivileges(l.path); err != nil {
		return l.fail(ErrPrivileged, "%v", err)
	}
	if l.opts.Checksums == "" {
		return nil
	}
	want, err := checksumOf(filepath.Base(l.path), l.opts.Checksums)
	if err != nil && exhausted(err) {
		return l.failed(ErrExhausted, err)
	}
	if err != nil {
		return l.fail(ErrNoChecksum, "%v", err)
	}
	got, err := sumOf(l.path)
	if err != nil {
		return l.failed(fileReason(err), err)
	}
	if got != want {
		return l.fail(ErrChecksum, "it is %s, and %s says %s", got, l.opts.Checksums, want)
	}
	return nil
}

func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checksumOf returns the sum that the checksum file lists for the file named base. Each line has a
// sum in hex, a separator and a file name. The separator is two blanks, or a blank and a "*".
func checksumOf(base, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		sum, name, ok := strings.Cut(strings.TrimSpace(lines.Text()), " ")
		name = strings.TrimPrefix(strings.TrimSpace(name), "*")
		if !ok || filepath.Base(name) != base {
			continue
		}
		sum = strings.ToLower(sum)
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return "", fmt.Errorf("%s: %q is not a SHA-256 sum", file, sum)
		}
		return sum, nil
	}
	return "", fmt.Errorf("%s has no line for %s", file, base)
}
