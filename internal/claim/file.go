package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The variable sets has groups of rules. A claim file may name a group in place of its rules.
var sets = []struct {
	name  Rule
	rules []Rule
}{{"double grant", Twice()}, {"late grant", Late()}}

// file is the JSON form of [Terms]. It lists what the author of a
// backend does not promise. The author promises everything else.
type file struct {
	Exceptions  []Exception `json:"exceptions,omitempty"`
	Forgets     bool        `json:"forgets_data,omitempty"`
	ExpiresLate text        `json:"expires_late,omitempty"`
	Turn        text        `json:"turn,omitempty"`
	Reconnects  text        `json:"reconnects_within,omitempty"`
}

// text is a duration in the form "1.5s".
type text time.Duration

func (t text) MarshalText() ([]byte, error) { return []byte(time.Duration(t).String()), nil }

func (t *text) UnmarshalText(b []byte) error {
	d, err := time.ParseDuration(string(b))
	if err != nil || d < 0 {
		return fmt.Errorf("%q is no duration like \"1.5s\"", b)
	}
	*t = text(d)
	return nil
}

// MarshalJSON writes t in the JSON form of a claim file.
func (t Terms) MarshalJSON() ([]byte, error) {
	return json.Marshal(file{t.Exceptions, t.Forgets, text(t.ExpiresLate), text(t.Turn), text(t.Reconnects)})
}

// UnmarshalJSON reads a claim file. It fails for unknown fields, rules and
// conditions, and for an exception without a rule or without a condition.
func (t *Terms) UnmarshalJSON(b []byte) error {
	var f file
	in := json.NewDecoder(bytes.NewReader(b))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return fmt.Errorf("the value of %q must be another type than %s", kind.Field, kind.Value)
		}
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	for i, e := range f.Exceptions {
		if len(e.Rules) == 0 || len(e.All) == 0 {
			return fmt.Errorf("exception %d names no rule, or no condition under which it is not promised", i+1)
		}
		for _, set := range sets {
			if n := slices.Index(e.Rules, set.name); n >= 0 {
				e.Rules = slices.Replace(e.Rules, n, n+1, set.rules...)
			}
		}
		if err := known("rule", e.Rules, Rules); err != nil {
			return err
		}
		f.Exceptions[i].Rules = e.Rules
		if err := known("condition", slices.Concat(e.All, e.Any), Conditions); err != nil {
			return err
		}
	}
	*t = Terms{f.Exceptions, time.Duration(f.Turn), time.Duration(f.ExpiresLate), time.Duration(f.Reconnects), f.Forgets}
	return nil
}

// known returns an error that names the first element of words that is not in the slice all.
func known[W ~string](what string, words, all []W) error {
	for _, w := range words {
		if !slices.Contains(all, w) {
			return fmt.Errorf("there is no %s %q, but %q", what, w, all)
		}
	}
	return nil
}
