package bench

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/bench/internal/check"
	"github.com/lockbench/lockbench/bench/internal/faults"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/core/plugin"
)

// TestKeys checks that JSON keys are in lower case, with underscores between words.
func TestKeys(t *testing.T) {
	for _, doc := range []any{
		verdictDoc(check.Verdict{}), results.Manifest{}, kept{}, []holderDoc{}, []list{}, []part{}, plugin.Description{}, []played{}, []*faults.Found{},
	} {
		checkKeys(t, reflect.TypeOf(doc), map[reflect.Type]bool{})
	}
}

var key = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

func checkKeys(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		checkKeys(t, of.Elem(), seen)
	case reflect.Struct:
		if seen[of] || of.PkgPath() == "time" {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "-" || !f.IsExported() {
				continue
			}
			if !key.MatchString(name) && !f.Anonymous {
				t.Errorf("%v.%s has the key %q", of, f.Name, name)
			}
			checkKeys(t, f.Type, seen)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	folder, sweep := errors.New("the disk is full"), errors.New("the server is gone")
	for cells, want := range []string{"interrupted\nthe server is gone", "interrupted\nthe disk is full\nthe server is gone"} {
		r := result{cells: cells, interrupted: true, closing: sweep}
		r.verdict.Subjects = []check.Subject{{Granted: cells}}
		if _, err := r.outcome(ctx, folder); !errors.Is(err, ErrInterrupted) || err.Error() != want {
			t.Errorf("%d cells: %v", cells, err)
		}
	}
}

// TestSameGrant checks that sameGrant accepts a token that was rounded to a double. It must refuse
// the tokens of the previous grant and of the next grant.
func TestSameGrant(t *testing.T) {
	const token = 1809738798206418944
	for typed, want := range map[uint64]bool{token: true, token + 3: true, 1809738798206418900: true, token - 1024: false, token + 1024: false, 7: false} {
		if sameGrant(token, typed) != want {
			t.Errorf("%d for %d: want %v", typed, uint64(token), want)
		}
	}
}
