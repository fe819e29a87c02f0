// Package status reports over HTTP whether a host is ready, and which host leads.
//
//	var h status.Handler
//	h.Add(client)
//	go h.Follow(ctx, client, election)
//	mux.Handle("GET /ready", &h)
//	mux.Handle("GET /leader", &h)
//
// /ready answers 200 if every client given to [Handler.Add] is ready, and otherwise 503 with the
// reason as text. A client is ready if its store answers [core.Client.Check], or if
// [Handler.Follow] sees a leader through this client. So a rollout with a wrong store address stops
// at its first host. A host that sees a leader stays ready even if a busy store fails Check. Use
// /ready for readiness probes only. As a liveness probe, /ready would kill all hosts in an outage.
//
// /leader answers with a [Leader] as JSON. The status is 200 if this host sees a leader, 503 if it
// sees none, and 404 if it does not follow the election. The query ?election=NAME names the
// election. The default is the election that this host followed first.
package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/lockbench/lockbench/core"
)

// timeout is the longest time for which /ready waits for the stores. It is below one second,
// because Kubernetes probes give up after one second by default.
const timeout = 800 * time.Millisecond

// Leader is an election's state as this host sees it.
type Leader struct {
	Election string `json:"election"`
	Held     bool   `json:"held"` // there is a leader, as far as this host knows
	Label    string `json:"label,omitempty"`
	Token    uint64 `json:"token,omitempty"`
	// TokenText is Token as text, for programs whose JSON numbers are exact only up to 2^53.
	TokenText string `json:"token_text,omitempty"`
	Value     []byte `json:"value_base64,omitempty"`
	// Since is the time (by this host's clock) when this host first saw the present leader, or first
	// saw that there is no leader. Since is null until the store has answered once.
	Since *time.Time `json:"since"`
	// StaleSince is set while this host cannot read the election from the store. It is the time when
	// that problem began, and Error says why. The other fields then describe the last known leader.
	StaleSince *time.Time `json:"stale_since,omitempty"`
	Error      string     `json:"error,omitempty"`
}

// seen reports whether the host sees a leader. A host that cannot reach the store sees no leader.
func (l Leader) seen() bool { return l.Held && l.StaleSince == nil }

// Handler answers requests for /ready and /leader. It looks only at the last element of the URL
// path, so it can serve below any prefix. The zero Handler is ready for use, by many goroutines.
type Handler struct {
	mu        sync.Mutex
	clients   []*core.Client
	elections []*election
}

// election is an election that a Handler follows. The Handler's mutex guards the field leader.
type election struct {
	client *core.Client
	leader Leader
}

// Add makes readiness depend on the client c. A Handler without a client is not ready.
func (h *Handler) Add(c *core.Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clients = append(h.clients, c)
}

// Follow observes the election e of the client c until ctx ends or c closes. If other code observes
// e through c too, the store gets no additional requests.
func (h *Handler) Follow(ctx context.Context, c *core.Client, e *core.Elector) {
	f := &election{client: c, leader: Leader{Election: e.Name()}}
	h.mu.Lock()
	h.elections = append(h.elections, f)
	h.mu.Unlock()
	for change := range e.Observe(ctx) {
		h.mu.Lock()
		f.leader = f.leader.after(change, time.Now())
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if f.leader.StaleSince == nil {
		f.leader = f.leader.after(core.Change{Kind: core.Stale, Since: time.Now(), Err: errNotFollowed}, time.Now())
	}
}

var errNotFollowed = errors.New("the election is no longer followed")

// The method after returns the state that replaces l when the host observes change at the time now.
func (l Leader) after(change core.Change, now time.Time) Leader {
	if change.Kind == core.Stale {
		l.StaleSince, l.Error = &change.Since, change.Err.Error()
		return l
	}
	next := Leader{Election: l.Election, Held: change.Leader.Held(), Label: change.Leader.Label, Token: change.Leader.Token, Value: change.Leader.Value, Since: &now}
	if next.Token != 0 {
		next.TokenText = strconv.FormatUint(next.Token, 10)
	}
	if l.Since != nil && l.Held == next.Held && l.Token == next.Token && l.Label == next.Label {
		next.Since = l.Since
	}
	return next
}

// Ready returns nil if the host is ready, and otherwise an error that says why it is not. Ready
// waits for the clients' stores, at most until ctx ends.
func (h *Handler) Ready(ctx context.Context) error {
	h.mu.Lock()
	clients := h.clients
	h.mu.Unlock()
	if len(clients) == 0 {
		return errors.New("no client is open yet")
	}
	checks := make([]error, len(clients))
	var work sync.WaitGroup
	for i, c := range clients { // concurrently, so that a slow store does not use up the time of another check
		work.Go(func() { checks[i] = c.Check(ctx) })
	}
	work.Wait()
	for i, c := range clients {
		if checks[i] != nil && !h.sees(c) {
			return checks[i]
		}
	}
	return nil
}

func (h *Handler) sees(c *core.Client) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.elections {
		if f.client == c && f.leader.seen() {
			return true
		}
	}
	return false
}

// Leader returns the state of the named election, as this host sees it, or false if this host does
// not follow that election. The name "" means the election that this host followed first.
func (h *Handler) Leader(name string) (Leader, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.elections {
		if name == "" || f.leader.Election == name {
			return f.leader, true
		}
	}
	return Leader{}, false
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path.Base(r.URL.Path) {
	case "ready":
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		if err := h.Ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	case "leader":
		name := r.FormValue("election")
		l, ok := h.Leader(name)
		if !ok {
			http.Error(w, fmt.Sprintf("election %q is not followed by this host", name), http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if !l.seen() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(l) // the error means that the HTTP client has gone
	default:
		http.NotFound(w, r)
	}
}
