package measure

import (
	"testing"

	"github.com/lockbench/lockbench/internal/inject"
)

// TestTrips checks that a reply counts only if it can be the answer to the request, and that a
// request counts only if it can follow the previous reply.
func TestTrips(t *testing.T) {
	const up, down = inject.Requests, inject.Replies
	for name, c := range map[string]struct {
		passed []passage
		want   int64
	}{
		"nothing":                          {nil, 0},
		"one":                              {[]passage{{10, up}, {70, down}}, 1},
		"two, one after the other":         {[]passage{{10, up}, {70, down}, {130, up}, {190, down}}, 2},
		"nodes that are asked together":    {[]passage{{10, up}, {12, up}, {70, down}, {72, up}, {75, down}}, 1},
		"an answer to what was before":     {[]passage{{10, up}, {20, down}, {21, up}, {70, down}}, 1},
		"an answer after the end":          {[]passage{{10, up}, {70, down}, {130, up}, {960, down}}, 1},
		"a request without an answer":      {[]passage{{10, up}}, 0},
		"a request before the operation":   {[]passage{{-5, up}, {60, down}}, 0},
		"a push that nobody has asked for": {[]passage{{5, down}, {10, up}, {70, down}}, 1},
	} {
		if got := (&trips{half: 50, passed: c.passed}).in(span{0, 1000}); got != c.want {
			t.Errorf("%s: %d round trips, not %d", name, got, c.want)
		}
	}
}
