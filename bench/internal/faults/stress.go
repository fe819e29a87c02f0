package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockbench/lockbench/internal/servers"
)

const StressDoes = "two busy loops for each processor, and 4 MB written and flushed to the disk over and over"

// stressed is the time limit of the load. It is longer than any measurement.
const stressed = 24 * time.Hour

// Stress loads the processors, as the action "starve" does, and the disk that throwaway servers
// use. The load ends when the caller calls the function end, or when this process ends. Stress
// returns an end function even if it returns an error.
func Stress(ctx context.Context) (end func() error, err error) {
	w := &System{Environment: &servers.Environment{}}
	e := Event{Action: "starve", Lasts: Duration(stressed), Amount: 0.25}
	scratch, err := servers.NewScratch()
	if err != nil {
		return w.EndBackground, err
	}
	w.Begin(e, scratch.Close)
	return w.EndBackground, errors.Join(w.Inject(ctx, e), w.busyDisk(e, scratch.Dir()))
}

// These are the sizes of the file and of the blocks that busyDisk writes, in bytes.
const (
	diskBlock = 4 << 20
	diskFile  = 64 << 20
)

// busyDisk writes blocks of a file in the directory dir, over and over, and flushes each block.
// Searches have no such action, because servers that flush each commit would wait too long.
func (w *System) busyDisk(e Event, dir string) error {
	f, err := os.CreateTemp(dir, "busy-")
	if err != nil {
		return err
	}
	block, at := make([]byte, diskBlock), int64(0)
	w.WhileRunning(e, func(context.Context) bool {
		_, err = f.WriteAt(block, at)
		err = errors.Join(err, f.Sync())
		at = (at + diskBlock) % diskFile
		return err == nil
	}, func() error {
		if err != nil {
			err = fmt.Errorf("faults: stress of the disk: %w", err)
		}
		return errors.Join(err, f.Close())
	})
	return nil
}
