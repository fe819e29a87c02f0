//go:build !linux

package inject

import "time"

type alarm struct {
	timer *time.Timer
	rings chan struct{}
}

func newAlarm() (*alarm, error) { return &alarm{rings: make(chan struct{}, 1)}, nil }

func (a *alarm) in(d time.Duration) <-chan struct{} {
	a.close()
	a.timer = time.AfterFunc(d, func() {
		select {
		case a.rings <- struct{}{}:
		default:
		}
	})
	return a.rings
}

func (a *alarm) close() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
