package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/plugins/memory"
)

// together runs a function in n parts at once and returns their errors.
func together(t *testing.T, n int, part func(i int, c *core.Client) error) []error {
	t.Helper()
	store := memory.NewStore()
	errs := make([]error, n)
	var parts sync.WaitGroup
	for i := range n {
		parts.Go(func() {
			c := core.New(store.Open(), nil)
			errs[i] = errors.Join(part(i, c), c.Close(context.Background()))
		})
	}
	parts.Wait()
	return errs
}

// TestNextIsABarrier: nobody is past a step that somebody has not reached, and
// all have one seed, one ID and a number of their own.
func TestNextIsABarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const parts, steps = 4, 5
		var mu sync.Mutex
		reached, seeds, ids, numbers := make([]int, steps), map[uint64]bool{}, map[string]bool{}, []int{}
		errs := together(t, parts, func(i int, c *core.Client) error {
			time.Sleep(time.Duration(i) * time.Second)
			m, err := joinParts(t.Context(), c, "memory", parts, uint64(i+1), "p")
			if err != nil {
				return err
			}
			mu.Lock()
			seeds[m.seed], ids[m.said.All], numbers = true, true, append(numbers, m.mine+1)
			mu.Unlock()
			for step := range steps {
				time.Sleep(time.Duration(i*step) * 100 * time.Millisecond) // each as slow as it likes
				mu.Lock()
				reached[step]++
				mu.Unlock()
				if err := m.next(t.Context(), false); err != nil {
					return err
				}
				mu.Lock()
				if reached[step] != parts {
					err = fmt.Errorf("part %d is past step %d, which %d have reached", i, step, reached[step])
				}
				mu.Unlock()
				if err != nil {
					return err
				}
			}
			return m.next(t.Context(), true)
		})
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		slices.Sort(numbers)
		if len(seeds) != 1 || len(ids) != 1 || !slices.Equal(numbers, []int{1, 2, 3, 4}) {
			t.Errorf("seeds %v, IDs %v, numbers %v", seeds, ids, numbers)
		}
	})
}

// TestDeadPartsAreNotMet: a part that was killed in an earlier rendezvous keeps its
// place until its TTL is over, and is not taken for one of this rendezvous.
func TestDeadPartsAreNotMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		dead := core.New(store.Open(), nil)
		defer dead.Close(context.Background())
		e, err := dead.Elector("lockbench/parts/2/1", &core.ElectorOptions{TTL: 10 * time.Second, MaxHold: 10 * time.Second, Value: []byte(`{"part":"x","plan":"p","all":"old","step":99}`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Campaign(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var parts sync.WaitGroup
		for range 2 {
			parts.Go(func() {
				c := core.New(store.Open(), nil)
				defer c.Close(context.Background())
				m, err := joinParts(t.Context(), c, "memory", 2, 0, "p")
				if err != nil {
					t.Error(err)
					return
				}
				if waited := time.Since(began); waited < 10*time.Second {
					t.Errorf("they met after %v, beside a dead part", waited)
				}
				if err := errors.Join(m.next(t.Context(), false), m.next(t.Context(), true)); err != nil {
					t.Error(err)
				}
			})
		}
		parts.Wait()
	})
}

func apart(err error) bool {
	var alone *EnvError
	return errors.As(err, &alone) && strings.HasPrefix(err.Error(), "memory: the parts are not together: ")
}

func TestPartsThatCannotMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i, err := range together(t, 2, func(i int, c *core.Client) error {
			_, err := joinParts(t.Context(), c, "memory", 2, 0, fmt.Sprint(i))
			return err
		}) {
			// The first that sees it leaves, and then the other is alone.
			if !IsUsage(err) && !apart(err) {
				t.Errorf("another plan: part %d: %v", i, err)
			}
		}
		for _, err := range together(t, 2, func(_ int, c *core.Client) error {
			_, err := joinParts(t.Context(), c, "memory", 3, 0, "p")
			return err
		}) {
			if !apart(err) {
				t.Errorf("two of three: %v", err)
			}
		}
		errs := together(t, 2, func(i int, c *core.Client) error {
			m, err := joinParts(t.Context(), c, "memory", 2, 0, "p")
			if err != nil || i == 1 {
				return err // the second ends here, without a word
			}
			return m.next(t.Context(), false)
		})
		if !apart(errs[0]) || errs[1] != nil {
			t.Errorf("one that ended: %v", errs)
		}
	})
}
