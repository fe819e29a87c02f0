// Command fencedfile adds a line to a shared file under a lock. It reads the file, waits, and
// writes the file back with the line added. If a writer is paused or does not check its lease, the
// lease may end while the writer waits, and another writer may write first. The file remembers the
// highest token and refuses the late write.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/fence"
	"github.com/lockbench/lockbench/examples/internal/app"
)

type writer struct {
	app.Instance
	path    string
	ttl     time.Duration
	hold    time.Duration
	pause   time.Duration
	checked bool
}

func main() {
	var flags app.Flags
	flags.Add(flag.CommandLine)
	path := flag.String("file", "shared.txt", "the file; its highest token stands beside it")
	ttl := flag.Duration("ttl", 2*time.Second, "TTL of the lock")
	hold := flag.Duration("max-hold", time.Second, "longest time that a writer keeps the lock")
	pause := flag.Duration("pause", 0, "how long the first instance thinks without a look at its lease")
	checked := flag.Bool("check", true, "let the file check tokens; false shows the lost update")
	flag.Parse()
	flags.Main(func(ctx context.Context, i app.Instance) error {
		w := writer{Instance: i, path: *path, ttl: *ttl, hold: *hold, checked: *checked}
		if i.Number == 1 {
			w.pause = *pause
		} else if *pause > 0 {
			time.Sleep(*pause / 4) // so that the first writer reads first
		}
		return w.addLine(ctx)
	})
}

func (w *writer) addLine(ctx context.Context) error {
	l, err := w.Client.Lock(w.path, &core.LockOptions{TTL: w.ttl, MaxHold: w.hold})
	if err != nil {
		return err
	}
	lease, err := l.Acquire(ctx)
	if err != nil {
		return err
	}
	switch err := w.change(lease.Token()); {
	case errors.Is(err, fence.ErrStale):
		w.say("refused: %v", err)
	case err != nil:
		return err
	default:
		w.say("has written under token %d", lease.Token())
	}
	if cause := lease.Err(); cause != nil {
		w.say("the lock was lost meanwhile: %s", core.CauseName(cause))
		return nil
	}
	return lease.Release(ctx)
}

// change first makes the file refuse earlier holders, so that they cannot write after the read.
func (w *writer) change(token uint64) error {
	file := fence.File{Path: w.path}
	if w.checked {
		if err := file.Raise(token); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(w.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w.say("has read %d bytes under token %d", len(text), token)
	time.Sleep(w.pause)
	text = fmt.Appendf(text, "%s under token %d\n", w.Name, token)
	if w.checked {
		return file.Write(token, text)
	}
	return os.WriteFile(w.path, text, 0o644)
}

func (w *writer) say(format string, args ...any) {
	fmt.Printf("%s %s\n", w.Name, fmt.Sprintf(format, args...))
}
