package bench

import (
	"net/url"
	"regexp"
	"strings"
)

// shownAddress returns an address, or a list of them, without user names and passwords.
func shownAddress(address string) string {
	parts := splitAddresses(address)
	for i, p := range parts {
		scheme := addressScheme.FindString(p)
		parts[i] = scheme + withoutUser(p[len(scheme):])
	}
	return strings.Join(parts, ",")
}

// addressScheme finds the scheme of an address.
var addressScheme = regexp.MustCompile(`^[a-z]+://`)

// splitAddresses splits a list. A comma may also be part of a password: then an "@"
// follows, and no scheme in between.
func splitAddresses(list string) []string {
	var out []string
	for p := range strings.SplitSeq(list, ",") {
		p = strings.TrimSpace(p)
		if strings.Contains(p, "@") && !addressScheme.MatchString(p) {
			from := max(0, len(out)-1)
			for from > 0 && !addressScheme.MatchString(out[from]) {
				from--
			}
			p = strings.Join(append(out[from:], p), ",")
			out = out[:from]
		}
		out = append(out, p)
	}
	return out
}

// plainAddress is what remains of an address without user and query.
var plainAddress = regexp.MustCompile(`^[\pL\pN.:/()\[\]~%_-]*$`)

// withoutUser cuts "user:password@" and a query, which may hold one too. Where an
// "@" may belong to either, or there are signs of a setting that was taken for an
// address, it shows nothing.
func withoutUser(s string) string {
	at, query := strings.LastIndexByte(s, '@'), strings.IndexByte(s, '?')
	if query >= 0 && query < at {
		return "..."
	}
	if s, _, _ = strings.Cut(s[at+1:], "?"); !plainAddress.MatchString(s) {
		return "..."
	}
	return s
}

// hasSecret reports whether an address holds a password.
func hasSecret(address string) bool {
	for _, p := range splitAddresses(address) {
		rest := p[len(addressScheme.FindString(p)):]
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
