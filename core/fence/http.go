package fence

import (
	"errors"
	"net/http"
	"strconv"
)

// Header is the HTTP header in which [Handler] expects the token, in decimal.
const Header = "Lock-Token"

// Handler passes a request to next if the token in its [Header] is not stale
// for the resource that name finds in the request. A missing, malformed or
// zero token is answered with 400, a stale one with 409, and a guard that
// fails with 503.
//
// Requests with rising tokens may still overtake each other inside next. Where
// that matters, next checks again where it writes ([Guard.Do], [Exec]).
func Handler(guard Raiser, name func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := strconv.ParseUint(r.Header.Get(Header), 10, 64)
		if err != nil {
			http.Error(w, "header "+Header+" must hold the fencing token in decimal", http.StatusBadRequest)
			return
		}
		switch err := guard.Raise(name(r), token); {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, ErrStale):
			http.Error(w, err.Error(), http.StatusConflict)
		case errors.Is(err, ErrNoToken):
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			http.Error(w, "the fencing guard failed: "+err.Error(), http.StatusServiceUnavailable)
		}
	})
}
