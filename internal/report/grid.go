package report

import (
	"slices"

	"github.com/lockbench/lockbench/internal/results"
)

// cell is one field of a shown table.
type cell struct {
	Text string
	// Value sorts numbers; nil sorts by the text.
	Value *float64
	ours  bool // names a backend through its plugin
}

// grid is a table as it is shown, in every format.
type grid struct {
	Title   string
	Note    string // below it; may be empty
	Columns []gridColumn
	Rows    []gridRow
	// Keys is how many of the first columns say what a row is about, 0 for one.
	Keys int
}

type gridColumn struct {
	Title  string
	Number bool // aligned right
}

type gridRow []cell

// Ours reports whether a row is about a backend through its plugin.
func (g gridRow) Ours() bool { return len(g) > 0 && g[0].ours }

// column is one column of a table whose rows are about a T each.
type column[T any] struct {
	gridColumn
	cell func(T) cell
}

// textColumn is a column of text.
func textColumn[T any](title string, text func(T) string) column[T] {
	return column[T]{gridColumn{title, false}, func(of T) cell { return word(text(of)) }}
}

// numberColumn is a column of numbers.
func numberColumn[T any](title string, cell func(T) cell) column[T] {
	return column[T]{gridColumn{title, true}, cell}
}

// tabulate gives g the columns, and a row for each of rows.
func tabulate[T any](g grid, columns []column[T], rows []T) grid {
	for _, c := range columns {
		g.Columns = append(g.Columns, c.gridColumn)
	}
	for _, of := range rows {
		var row gridRow
		for _, c := range columns {
			row = append(row, c.cell(of))
		}
		g.Rows = append(g.Rows, row)
	}
	return g
}

func word(s string) cell { return cell{Text: s} }

func numeric(text string, v float64) cell { return cell{Text: text, Value: &v} }

func count(n int64) cell { return numeric(grouped(float64(n)), float64(n)) }

func took(ns int64) cell { return numeric(duration(float64(ns)), float64(ns)) }

// subject names what a row is about.
func subject(s results.Subject) cell {
	return cell{Text: name(s), ours: s.Kind == results.KindPlugin}
}

// filter returns the items that are to be kept.
func filter[T any](items []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return !keep(item) })
}

// group are those of some items that have one key.
type group[K comparable, T any] struct {
	key K
	all []T
}

// groups orders items by key, in the order in which the keys come first.
func groups[K comparable, T any](items []T, key func(T) K) []group[K, T] {
	var out []group[K, T]
	for _, item := range items {
		k := key(item)
		i := slices.IndexFunc(out, func(g group[K, T]) bool { return g.key == k })
		if i < 0 {
			i, out = len(out), append(out, group[K, T]{key: k})
		}
		out[i].all = append(out[i].all, item)
	}
	return out
}

// distinct are the keys of the items, in the order in which they come first.
func distinct[K comparable, T any](items []T, key func(T) K) []K {
	var out []K
	for _, g := range groups(items, key) {
		out = append(out, g.key)
	}
	return out
}
