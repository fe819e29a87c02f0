package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
)

// Redacted is the text that replaces a secret.
const Redacted = "[secret]"

// A Redactor does not remove a value with fewer than minSecret bytes, because so short a value is
// hardly a secret and often occurs in other words.
const minSecret = 4

// Redactor removes secret values from texts that people read. Any number of
// goroutines may use it. A nil Redactor removes nothing.
type Redactor struct {
	replacer atomic.Pointer[strings.Replacer]
}

// SetConfig makes the Redactor remove the secret values of cfg, instead of the values from earlier
// calls. The function secret must report whether the value of a key is secret.
func (r *Redactor) SetConfig(cfg map[string]string, secret func(key, value string) bool) {
	var values []string
	for key, v := range cfg {
		if len(v) >= minSecret && secret(key, v) {
			values = append(values, v)
		}
	}
	// The longest value comes first, because one secret may be part of another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, v := range values {
		pairs = append(pairs, v, Redacted)
		if quoted := jsonText(v); quoted != v {
			pairs = append(pairs, quoted, Redacted)
		}
	}
	r.replacer.Store(strings.NewReplacer(pairs...))
}

// Text returns the text s without the secrets.
func (r *Redactor) Text(s string) string {
	if r != nil {
		if replacer := r.replacer.Load(); replacer != nil {
			return replacer.Replace(s)
		}
	}
	return s
}

func jsonText(v string) string {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	return string(b[1 : len(b)-1])
}
