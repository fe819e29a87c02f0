package etcd

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"

	"github.com/lockbench/lockbench/internal/inject"
)

// Peers relay the messages between the members of a cluster. So a member can be cut off from the
// other members while clients still reach it. The zero value is ready to be set in the [Options] of
// [StartCluster].
type Peers struct {
	mu     sync.Mutex
	relays []*peerRelay
	round  context.Context // ends at the next call of CutOff, and so do all messages in progress
	end    context.CancelFunc
}

// peerRelay relays messages to the peer port of one member. Peers.mu guards the fields id and cut.
type peerRelay struct {
	peers  *Peers
	server *http.Server
	proxy  *httputil.ReverseProxy
	id     string // the member's id, as the other members address it
	cut    bool
}

// relay starts a relay to the member with the given peer port. It returns the relay's port, which
// the other members use instead of the peer port.
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
	r.proxy.FlushInterval = -1 // so that streams pass at once
	r.proxy.ErrorLog = log.New(io.Discard, "", 0)
	r.proxy.Transport = &http.Transport{}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays = append(p.relays, r)
	if p.round == nil {
		p.round, p.end = context.WithCancel(context.Background())
	}
	return l.Addr().(*net.TCPAddr).Port, nil
}

// ServeHTTP passes on one request of a member. If the sender or the receiver is cut off, it sends
// no reply. The next call of CutOff aborts the request, because most requests are endless streams.
func (r *peerRelay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	p, from := r.peers, req.Header.Get("X-Server-From")
	p.mu.Lock()
	if id := req.Header.Get("X-Raft-To"); id != "" {
		r.id = id
	}
	apart := slices.ContainsFunc(p.relays, func(one *peerRelay) bool { return one.cut && (one == r || one.id == from) })
	defer context.AfterFunc(p.round, cancel)()
	p.mu.Unlock()
	if apart {
		<-ctx.Done()
	} else {
		r.proxy.ServeHTTP(w, req.WithContext(ctx))
	}
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler) // ends the request abruptly
	}
}

// CutOff cuts the member at index i off from all others if the parameter on is true. Otherwise it
// reconnects that member. It also aborts messages between other members, which then resend them.
func (p *Peers) CutOff(i int, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relays[i].cut = on
	p.end()
	p.round, p.end = context.WithCancel(context.Background())
}

func (p *Peers) Close() error {
	p.mu.Lock()
	relays := p.relays
	p.relays = nil
	p.mu.Unlock()
	if p.end != nil {
		p.end()
	}
	return inject.Each(relays, func(r *peerRelay) error { return r.server.Close() })
}
