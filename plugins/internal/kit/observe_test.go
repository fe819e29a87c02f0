package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// TestPollerAsksOnceForAll checks that one call of Look a second serves 100 observers of 50 locks.
func TestPollerAsksOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // guards the variables below
		looks := 0
		token := uint64(1)
		seen := map[string][]uint64{}
		errLook := errors.New("of this test")
		var fails error
		p := &Poller{Every: time.Second, Go: func(f func()) bool { go f(); return true }}
		p.Look = func(names []string) map[string]Seen {
			mu.Lock()
			defer mu.Unlock()
			looks++
			found := map[string]Seen{}
			for _, name := range names {
				found[name] = Seen{driver.Holder{Name: name, Owner: "o", Token: token, TTL: time.Minute}, fails}
			}
			return found
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 100)
		for i := range cap(ended) {
			name := fmt.Sprint(i % 50)
			go func() {
				ended <- p.Follow(ctx, name, func(h driver.Holder) {
					mu.Lock()
					defer mu.Unlock()
					seen[name] = append(seen[name], h.Token)
				})
			}()
		}
		time.Sleep(10*time.Second + time.Millisecond)
		mu.Lock()
		if looks > 12 {
			t.Errorf("%d looks in 10 s", looks)
		}
		token = 2
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		for i := range 50 {
			if got := fmt.Sprint(seen[fmt.Sprint(i)]); got != "[1 1 2 2]" {
				t.Errorf("the followers of %d saw tokens %s", i, got)
			}
		}
		fails = errLook
		mu.Unlock()
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, errLook) {
				t.Errorf("ended with %v", err)
			}
		}
		cancel()
		if err := p.Follow(ctx, "n", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("with a ctx that is over: %v", err)
		}
		time.Sleep(2 * p.Every)
		p.Go = func(func()) bool { return false }
		if err := p.Follow(t.Context(), "n", nil); !errors.Is(err, driver.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
