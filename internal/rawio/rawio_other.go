//go:build !linux

package rawio

import "syscall"

// Read reads from a non-blocking socket. It returns EAGAIN if no data have arrived.
func Read(fd uintptr, p []byte) (int, error) { return retry(syscall.Read, fd, p) }

// Write writes to a non-blocking socket. It returns EAGAIN if the socket's buffer is full.
func Write(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

func retry(do func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := do(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
