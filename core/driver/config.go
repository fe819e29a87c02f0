package driver

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/similar"
)

// CheckConfig returns cfg with defaults for the keys without a value. Its error wraps [ErrConfig],
// and names a required key that is missing, a key whose value has the wrong type, or an unknown key
// with similar known keys. The error shows no value, because values may be secret. It shows an
// unknown key only if a known key is similar, because any other text may be a misplaced secret.
func (s Spec) CheckConfig(cfg Config) (Config, error) {
	out := Config{}
	var names []string
	for _, k := range s.Keys {
		names = append(names, k.Name)
	}
	for name := range cfg { // before the search for missing keys, because one may be misspelt
		if slices.Contains(names, name) {
			continue
		}
		if len(similar.To(name, names)) == 0 {
			return nil, fmt.Errorf("%w: %s does not have one of the given keys%s", ErrConfig, s.Name, similar.Suggest("", names))
		}
		return nil, fmt.Errorf("%w: %s has no key %q%s", ErrConfig, s.Name, name, similar.Suggest(name, names))
	}
	for _, k := range s.Keys {
		v := cmp.Or(cfg[k.Name], k.Default)
		if v == "" && k.Required {
			return nil, fmt.Errorf("%w: %s needs %q: %s", ErrConfig, s.Name, k.Name, k.Doc)
		}
		if err := k.check(v); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, s.Name, err)
		}
		out[k.Name] = v
	}
	return out, nil
}

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
			err = strconv.ErrSyntax // nothing is listed
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s is not a valid %s", k.Name, k.Type)
}

// Int returns the value of the key called name, which has type int, or 0 if the value is empty.
func (c Config) Int(name string) int {
	n, _ := strconv.Atoi(c[name])
	return n
}

// Bool returns the value of the key called name, which has type bool, or false without a value.
func (c Config) Bool(name string) bool {
	b, _ := strconv.ParseBool(c[name])
	return b
}

// Duration returns the value of the key called name, which has type duration, or 0 without a value.
func (c Config) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(c[name])
	return d
}

// List returns the elements in the value of the key called name, which has type list. It removes
// the spaces around each element. List returns nil if the value is empty.
func (c Config) List(name string) []string {
	var parts []string
	for p := range strings.SplitSeq(c[name], ",") {
		if p = strings.TrimSpace(p); p != "" {
			parts = append(parts, p)
		}
	}
	return parts
}
