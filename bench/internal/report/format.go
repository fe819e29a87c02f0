package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/perf/benchunit"

	"github.com/lockbench/lockbench/bench/internal/results"
)

// unsupported replaces a difference that may be due to chance.
const unsupported = "~"

// times writes a ratio such as "2.31x ±4%".
func times(r results.Ratio) string {
	if !r.Supported {
		return unsupported
	}
	return significant(r.Center, 3) + "x" + spread(r.Estimate)
}

// value formats an estimate with its confidence interval, for example a time as "146µs ±3%" or a
// rate as "71,300 ±2%".
func value(unit string, e results.Estimate) string {
	if e.N == 0 {
		return ""
	}
	return bare(unit, e.Center) + spread(e)
}

func bare(unit string, v float64) string {
	if strings.Contains(unit, "-ns/") {
		return duration(v)
	}
	if strings.Contains(unit, "-bytes/") {
		return benchunit.Scale(v, benchunit.Binary) + "B"
	}
	return grouped(v)
}

func spread(e results.Estimate) string {
	if !e.Bounded() {
		return ""
	}
	return fmt.Sprintf(" ±%.0f%%", 100*e.Spread())
}

func duration(ns float64) string {
	for _, u := range []struct {
		scale float64
		name  string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if ns >= u.scale {
			return significant(ns/u.scale, 3) + u.name
		}
	}
	return significant(ns, 3) + "ns"
}

// significant formats v with the given number of significant digits, and without an exponent.
func significant(v float64, digits int) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	decimals := max(0, digits-1-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// grouped formats a number as "71,342". A number below 1000 that is not whole gets three digits.
func grouped(v float64) string {
	if v < 1000 && v != math.Trunc(v) {
		return significant(v, 3)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// listed joins names to a text such as "one, two and three".
func listed(names []string) string { return series(names, " and ") }

// joined joins the texts that are not empty, with commas.
func joined(texts ...string) string { return strings.Join(filter(texts, said), ", ") }

func said(text string) bool { return text != "" }

func series(names []string, last string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + last + names[n-1]
	}
	return strings.Join(names, "")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
