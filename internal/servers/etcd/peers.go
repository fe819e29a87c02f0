package etcd

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/lockbench/lockbench/internal/inject"
)

// Peers carry what the members of one cluster say to each other, so that a
// member can be cut off from the others while clients reach it. Give the zero
// value to [StartCluster] in [Options].
type Peers struct {
	mu     sync.Mutex
	relays []*peerRelay
	under  map[*peerTalk]bool
}

// peerRelay stands before the peer port of one member. Its last two
// fields are guarded by Peers.mu.
type peerRelay struct {
	peers  *Peers
	server *http.Server
	proxy  *httputil.ReverseProxy
	id     string // of its member, which others address
	cut    bool
}

// peerTalk is one request between two members; most are streams that never end.
type peerTalk struct {
	to     *peerRelay
	from   string
	cancel context.CancelFunc
}

// relay returns the port by which the others reach the member with this peer
// port.
func (p *Peers) relay(port int) (int, error) {
	target, err := url.Parse(loopback("http", port))
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	r := &peerRelay{peers: p, proxy: httputil.NewSingleHostReverseProxy(target)}
	r.proxy.FlushInterval = -1 // streams
	r.proxy.ErrorLog = log.New(io.Discard, "", 0)
	r.proxy.Transport = &http.Transport{}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays = append(p.relays, r)
	return l.Addr().(*net.TCPAddr).Port, nil
}

// ServeHTTP passes one request on, or leaves it without an answer while one of
// both is cut off.
func (r *peerRelay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	t := &peerTalk{to: r, from: req.Header.Get("X-Server-From"), cancel: cancel}
	p := r.peers
	p.mu.Lock()
	if id := req.Header.Get("X-Raft-To"); id != "" {
		r.id = id
	}
	apart := p.apart(t)
	if p.under == nil {
		p.under = map[*peerTalk]bool{}
	}
	p.under[t] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.under, t)
	}()
	if apart {
		<-ctx.Done()
	} else {
		r.proxy.ServeHTTP(w, req.WithContext(ctx))
	}
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // no orderly end
	}
}

// apart reports whether t is between a member that is cut off and another. The
// caller holds mu.
func (p *Peers) apart(t *peerTalk) bool {
	for _, r := range p.relays {
		if r.cut && (t.to == r || t.from == r.id) {
			return true
		}
	}
	return false
}

// CutOff separates the member at index i from all others, or ends that.
func (p *Peers) CutOff(i int, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.relays[i]
	r.cut = on
	for t := range p.under {
		if t.to == r || t.from == r.id {
			t.cancel() // also what waits: it is tried again
		}
	}
}

// Close ends all relays.
func (p *Peers) Close() error {
	p.mu.Lock()
	relays := p.relays
	p.relays = nil
	p.mu.Unlock()
	return inject.Each(relays, func(r *peerRelay) error { return r.server.Close() })
}
