// Package similar finds the known names that resemble an unknown name.
package similar

import (
	"slices"
	"strings"
)

// Suggest returns the end of an error message about an unknown name. It lists the names in known
// that resemble name. If no name resembles it, Suggest lists all names in known.
func Suggest(name string, known []string) string {
	if like := To(name, known); len(like) > 0 {
		return "; did you mean " + strings.Join(like, " or ") + "?"
	}
	all := slices.Sorted(slices.Values(known))
	return "; there are " + strings.Join(all, ", ")
}

// To returns the names in known that resemble name, sorted.
func To(name string, known []string) []string {
	var like []string
	for _, k := range known {
		if distance(name, k) <= max(1, len(k)/3) || name != "" && strings.HasPrefix(k, name) {
			like = append(like, k)
		}
	}
	slices.Sort(like)
	return like
}

// distance returns the smallest number of edits that turn a into b. An edit inserts, drops or
// replaces a byte, or swaps two neighbouring bytes (optimal string alignment).
func distance(a, b string) int {
	var before []int // the distances from a[:i-1] to each b[:j]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			next[j+1] = row[j]
			if a[i] != b[j] {
				next[j+1]++
			}
			next[j+1] = min(next[j+1], next[j]+1, row[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
