package driver

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/similar"
)

// CheckConfig returns cfg with defaults filled in. Otherwise it returns an
// error wrapping [ErrConfig] that names an unknown key and the similar ones, a
// missing required key, or a value of the wrong type. The error never shows a
// value, nor a key that resembles none: a secret may stand in the wrong place.
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
		if len(similar.To(name, names)) == 0 {
			return nil, fmt.Errorf("%w: %s does not have one of the given keys%s", ErrConfig, s.Name, similar.Suggest("", names))
		}
		return nil, fmt.Errorf("%w: %s has no key %q%s", ErrConfig, s.Name, name, similar.Suggest(name, names))
	}
	return out, nil
}

// errNothing is the error for a list of commas only.
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
