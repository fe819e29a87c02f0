package kit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// asked is an operation. The tests write it as a text of the form name/size/kind.
type asked struct {
	name string
	size int
	kind string
}

func parse(t *testing.T, texts string) (ops []asked) {
	t.Helper()
	for text := range strings.FieldsSeq(texts) {
		var op asked
		if _, err := fmt.Sscanf(strings.ReplaceAll(text, "/", " "), "%s %d %s", &op.name, &op.size, &op.kind); err != nil {
			t.Fatal(text, err)
		}
		ops = append(ops, op)
	}
	return ops
}

func TestQueue(t *testing.T) {
	name := func(op asked) string { return op.name }
	size := func(op asked) int { return op.size }
	room := func() int { return 10 }
	two := func() int { return 2 }
	for _, c := range []struct {
		what    string
		limits  Limits[asked]
		waiting string
		batches []string // the names in each batch
	}{
		{"all at once", Limits[asked]{}, "a/1/x b/1/x a/1/x", []string{"a b a"}},
		{"a count", Limits[asked]{Count: two}, "a/1/x b/1/x c/1/x d/1/x e/1/x", []string{"a b", "c d", "e"}},
		{"a size, in order", Limits[asked]{Size: size, Room: room}, "a/6/x b/5/x c/1/x d/4/x", []string{"a", "b c d"}},
		{"what is too large goes alone", Limits[asked]{Size: size, Room: room}, "a/1/x b/99/x c/1/x", []string{"a", "b", "c"}},
		{"names", Limits[asked]{Name: name}, "a/1/x b/1/x a/1/x c/1/x a/1/x", []string{"a b c", "a", "a"}},
		{"names and a count", Limits[asked]{Name: name, Count: two}, "a/1/x a/1/x b/1/x b/1/x c/1/x", []string{"a b", "a b", "c"}},
		{"names and a size", Limits[asked]{Name: name, Size: size, Room: room}, "a/6/x b/6/x c/4/x", []string{"a c", "b"}},
		{"no overtaking of the own name", Limits[asked]{Name: name, Size: size, Room: room}, "a/6/x b/6/x b/1/x c/1/x", []string{"a c", "b", "b"}},
		{"kinds", Limits[asked]{Name: name, Joins: func(first, op asked) bool { return first.kind == op.kind }},
			"a/1/x b/1/y c/1/x d/1/y", []string{"a c", "b d"}},
		{"kinds in order", Limits[asked]{Joins: func(first, op asked) bool { return first.kind == op.kind }},
			"a/1/x b/1/y c/1/x d/1/x", []string{"a", "b", "c d"}},
		{"what is not claimed", Limits[asked]{Count: two, Claim: func(op asked) bool { return op.kind != "gone" }},
			"a/1/gone b/1/x c/1/gone d/1/x e/1/gone", []string{"b d"}},
		{"what is not claimed takes no room", Limits[asked]{Size: size, Room: room, Claim: func(op asked) bool { return op.kind != "gone" }},
			"a/6/x b/4/gone c/4/x", []string{"a c"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			q := NewQueue(c.limits)
			q.Add(parse(t, c.waiting)...)
			var got []string
			for batch := q.Take(); batch != nil; batch = q.Take() {
				var names []string
				for _, op := range batch {
					names = append(names, op.name)
				}
				got = append(got, strings.Join(names, " "))
			}
			if !slices.Equal(got, c.batches) {
				t.Errorf("batches %q, want %q", got, c.batches)
			}
			if left := q.Drain(); len(left) > 0 {
				t.Errorf("left in the queue: %v", left)
			}
		})
	}
}

// TestQueueRoomChanges checks that Room may return another number for the next batch.
func TestQueueRoomChanges(t *testing.T) {
	room := 2
	q := NewQueue(Limits[int]{Size: func(n int) int { return n }, Room: func() int { return room }})
	q.Add(1, 1, 1, 1, 1)
	first := len(q.Take())
	room = 3
	if second := len(q.Take()); first != 2 || second != 3 {
		t.Errorf("batches of %d and %d, want 2 and 3", first, second)
	}
}

func TestQueueDrain(t *testing.T) {
	q := NewQueue(Limits[int]{Claim: func(int) bool { t.Error("claimed"); return true }})
	q.Add(1, 2)
	if got := q.Drain(); !slices.Equal(got, []int{1, 2}) || q.Take() != nil {
		t.Errorf("drained %v", got)
	}
}
