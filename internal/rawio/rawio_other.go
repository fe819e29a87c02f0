//go:build !linux

package rawio

import "syscall"

// Read is read(2). Where nothing has come yet it returns EAGAIN.
func Read(fd uintptr, p []byte) (int, error) { return retry(syscall.Read, fd, p) }

// Write is write(2). Where there is no room it returns EAGAIN.
func Write(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

func retry(do func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := do(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
