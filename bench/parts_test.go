package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/plugins/memory"
)

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

// TestDeadPartsAreNotMet checks that two parts wait until the lease of a dead part has ended.
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
			// A part ends when it sees another plan. The other part may then find itself alone.
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
				return err // the second part ends here without an error
			}
			return m.next(t.Context(), false)
		})
		if !apart(errs[0]) || errs[1] != nil {
			t.Errorf("one that ended: %v", errs)
		}
	})
}
