package fence

import (
	"errors"
	"net/http"
	"strconv"
)

// Header is the HTTP header in which [Handler] expects the token, in decimal.
const Header = "Lock-Token"

// Handler passes a request to the handler next if the token in the request's [Header] is not stale.
// The function name must return the name of the resource that the request is for. Handler answers
// 400 for a missing, malformed or zero token, 409 for a stale token, and 503 if guard itself fails.
//
// If two requests run at once, the request with the lower token may still write last. If that
// matters, the handler next must check the token again where it writes ([Guard.Do], [Exec]).
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
