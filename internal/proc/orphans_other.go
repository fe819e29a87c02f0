//go:build !linux

package proc

import "errors"

// AdoptOrphans always fails on this system.
func AdoptOrphans() error {
	return errors.New("this system gives orphans to its first process only")
}

// Rename does nothing on this system.
func Rename(string) error { return nil }
