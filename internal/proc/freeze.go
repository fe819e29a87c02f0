package proc

import (
	"errors"
	"syscall"
	"time"
)

// stopTime bounds how long Freeze waits for the kernel.
const stopTime = 10 * time.Second

// Freeze stops process pid with SIGSTOP and returns when it has stopped, or
// ended meanwhile: its threads run on until each of them looks. The error wraps
// syscall.ESRCH if there is no such process.
func Freeze(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for end := time.Now().Add(stopTime); ; time.Sleep(100 * time.Microsecond) {
		s, known := Of(pid)
		if !known || s.Stopped() || s.Ended() {
			return nil
		}
		if time.Now().After(end) {
			return errors.New("the process does not stop")
		}
	}
}
