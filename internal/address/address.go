// Package address shows addresses of servers without the passwords in them.
package address

import (
	"net/url"
	"regexp"
	"strings"
)

// Show returns an address, or a list of them, without user names and passwords.
func Show(address string) string {
	parts := split(address)
	for i, p := range parts {
		scheme := schemed.FindString(p)
		parts[i] = scheme + withoutUser(p[len(scheme):])
	}
	return strings.Join(parts, ",")
}

// schemed finds the scheme of an address.
var schemed = regexp.MustCompile(`^[a-z]+://`)

// split splits a list. A comma may also be part of a password: then an "@"
// follows, and no scheme in between.
func split(list string) []string {
	var out []string
	for p := range strings.SplitSeq(list, ",") {
		p = strings.TrimSpace(p)
		if strings.Contains(p, "@") && !schemed.MatchString(p) {
			from := max(0, len(out)-1)
			for from > 0 && !schemed.MatchString(out[from]) {
				from--
			}
			p = strings.Join(append(out[from:], p), ",")
			out = out[:from]
		}
		out = append(out, p)
	}
	return out
}

// plain is what remains of an address without user and query.
var plain = regexp.MustCompile(`^[\pL\pN.:/()\[\]~%_-]*$`)

// withoutUser cuts "user:password@" and a query, which may hold one too. Where an
// "@" may belong to either, or there are signs of a setting that was taken for an
// address, it shows nothing.
func withoutUser(s string) string {
	at, query := strings.LastIndexByte(s, '@'), strings.IndexByte(s, '?')
	if query >= 0 && query < at {
		return "..."
	}
	if s, _, _ = strings.Cut(s[at+1:], "?"); !plain.MatchString(s) {
		return "..."
	}
	return s
}

// HasSecret reports whether an address holds a password.
func HasSecret(address string) bool {
	for _, p := range split(address) {
		rest := p[len(schemed.FindString(p)):]
		if i := strings.LastIndexByte(rest, '@'); i >= 0 {
			if _, password, ok := strings.Cut(rest[:i], ":"); ok && password != "" {
				return true
			}
		}
		_, query, _ := strings.Cut(rest, "?")
		values, _ := url.ParseQuery(query) // what can be read of it
		if values.Has("password") {
			return true
		}
	}
	return false
}
