package plugin

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// verify checks that the binary can be executed and that nobody else could have
// replaced it, and compares it with the checksum file, if there is one. It is
// done before each start.
// Note: whoever can write to the binary between this and the start can still
// replace it, which is why the way to it must be safe. Executing the open file
// that was compared would not do for a script, whose interpreter opens it anew.
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

// sumOf is the SHA-256 of the file at path, in hex.
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

// checksumOf finds the sum of the file called base. A line is the sum in hex,
// a blank, a blank or * (for binary mode), and the name.
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
