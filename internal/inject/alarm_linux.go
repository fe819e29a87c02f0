package inject

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm sends on its rings channel at a set time. It uses a timer of the kernel, because a timer of
// Go may fire a millisecond late in an otherwise idle process.
type alarm struct {
	fd    int
	timer *os.File
	rings chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{fd: fd, timer: os.NewFile(uintptr(fd), "timer"), rings: make(chan struct{}, 1)}
	go func() {
		for count := make([]byte, 8); ; {
			if _, err := a.timer.Read(count); err != nil {
				return // the timer was closed
			}
			select {
			case a.rings <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// The in method makes the alarm ring after the time d. The channel may still have an earlier ring.
func (a *alarm) in(d time.Duration) <-chan struct{} {
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(max(d, 1)))}
	_ = unix.TimerfdSettime(a.fd, 0, &once, nil) // cannot fail: timer and time are valid
	return a.rings
}

func (a *alarm) close() { _ = a.timer.Close() } // cannot fail, because nothing was written
