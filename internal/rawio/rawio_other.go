//go:build !linux

package rawio

import "syscall"

func Read(fd uintptr, p []byte) (int, error) { return retry(syscall.Read, fd, p) }

func Write(fd uintptr, p []byte) (int, error) { return retry(syscall.Write, fd, p) }

func retry(do func(int, []byte) (int, error), fd uintptr, p []byte) (int, error) {
	for {
		n, err := do(int(fd), p)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}
