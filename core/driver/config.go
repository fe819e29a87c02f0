package driver

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CheckConfig returns cfg with defaults filled in, or an error wrapping
// [ErrConfig] that names an unknown key and the near ones, a missing required
// key, or a value of the wrong type. It never shows a value, nor a key that is
// like none: a secret may stand in the wrong place.
func (s Spec) CheckConfig(cfg Config) (Config, error) {
	out := Config{}
	names := make([]string, 0, len(s.Keys))
	for _, k := range s.Keys {
		names = append(names, k.Name)
		v := cfg[k.Name]
		if v == "" {
			v = k.Default
		}
		if v == "" && k.Required {
			return nil, fmt.Errorf("%w: %s needs %q: %s", ErrConfig, s.Name, k.Name, k.Doc)
		}
		if err := k.check(v); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.Name, err)
		}
		out[k.Name] = v
	}
	for name := range cfg {
		if _, known := out[name]; known {
			continue
		}
		if len(near(name, names)) == 0 {
			return nil, fmt.Errorf("%w: %s does not have one of the given keys%s", ErrConfig, s.Name, Suggest("", names))
		}
		return nil, fmt.Errorf("%w: %s has no key %q%s", ErrConfig, s.Name, name, Suggest(name, names))
	}
	return out, nil
}

// errNothing is of a list of commas.
var errNothing = errors.New("nothing is listed")

func (k Key) check(v string) error {
	if v == "" {
		return nil
	}
	var err error
	switch k.Type {
	case TypeInt:
		_, err = strconv.Atoi(v)
	case TypeBool:
		_, err = strconv.ParseBool(v)
	case TypeDuration:
		_, err = time.ParseDuration(v)
	case TypeList:
		if len(Config{k.Name: v}.List(k.Name)) == 0 {
			err = errNothing
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s is not a valid %s", k.Name, k.Type)
}

// Int returns the value of an int key, 0 when it is empty.
func (c Config) Int(name string) int {
	n, _ := strconv.Atoi(c[name])
	return n
}

// Bool returns the value of a bool key, false when it is empty.
func (c Config) Bool(name string) bool {
	b, _ := strconv.ParseBool(c[name])
	return b
}

// Duration returns the value of a duration key, 0 when it is empty.
func (c Config) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(c[name])
	return d
}

// List returns the parts of a list key without blanks around them, nil when
// it is empty.
func (c Config) List(name string) []string {
	var parts []string
	for p := range strings.SplitSeq(c[name], ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}

// Suggest ends an error about an unknown name: with the near ones among known,
// or with all of them when none is near.
func Suggest(name string, known []string) string {
	if like := near(name, known); len(like) > 0 {
		return "; did you mean " + strings.Join(like, " or ") + "?"
	}
	all := slices.Sorted(slices.Values(known))
	return "; there are " + strings.Join(all, ", ")
}

// near returns those of known that name is like, sorted.
func near(name string, known []string) []string {
	var like []string
	for _, k := range known {
		if distance(name, k) <= max(1, len(k)/3) || name != "" && strings.HasPrefix(k, name) {
			like = append(like, k)
		}
	}
	slices.Sort(like)
	return like
}

// distance counts the bytes to insert, drop or replace, and the neighbours to
// swap, that make b of a: the optimal string alignment.
func distance(a, b string) int {
	var before []int // the row for a[:i-1]
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
