package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// slowAfter is how long a request may go unanswered before its member is
	// compared with the others.
	slowAfter = 250 * time.Millisecond
	// askNext is how long one member has for the question of such a comparison
	// until the next one is asked too, and sickAfter how long it has to answer
	// when another one did.
	askNext   = 150 * time.Millisecond
	sickAfter = 500 * time.Millisecond
	// electedGrace is what requests that were sent before a change of leader have
	// for their answer.
	electedGrace = 300 * time.Millisecond
)

// Why a request ended before its answer: it may have been done.
var (
	errSick    = errors.New("etcd: this member did not answer, and another one did")
	errElected = errors.New("etcd: no answer, and the cluster has another leader since")
)

// members are the servers of the cluster. All requests and streams of this
// process go to one of them, and to another one when that one fails: at once
// when it says so, otherwise when it does not answer what another one answers.
//
// Note: the client's own balancer goes round among all that are connected. A
// member that stands still, or has lost its peers, is connected for 13 s and
// more, and with one request in three it stops every caller.
type members struct {
	b    *Backend
	mu   sync.Mutex
	all  []*member
	at   *member // in use
	term uint64  // the highest seen
}

// member is one server. What follows dial is guarded by members.mu.
type member struct {
	endpoint string
	dial     chan struct{} // held by the one that logs in
	conn     *conn         // nil until it is used
	failed   time.Time     // when it did so last
}

func (ms *members) init(b *Backend) {
	ms.b = b
	for _, e := range b.opts.Address {
		ms.all = append(ms.all, &member{endpoint: e, dial: make(chan struct{}, 1)})
	}
	ms.at = ms.all[rand.IntN(len(ms.all))]
}

// several reports whether there is a choice.
func (ms *members) several() bool { return len(ms.all) > 1 }

// use returns the member in use, and its connection if there is one.
func (ms *members) use() (*member, *conn) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	return ms.at, ms.at.conn
}

// avoid has the next request go elsewhere: m has failed.
func (ms *members) avoid(m *member) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.failed = time.Now()
	if ms.at == m {
		ms.choose(ms.order()[1:])
	}
}

// choose uses the first of order. The caller holds mu.
func (ms *members) choose(order []*member) {
	if len(order) == 0 {
		return
	}
	ms.at = order[0]
	if c := ms.at.conn; c != nil { // do not wait for grpc's next attempt
		c.client.ActiveConnection().ResetConnectBackoff()
	}
}

// order is the one in use, then the others as they are to be tried: those that
// never failed in any order, then those that failed longest ago. The caller
// holds mu.
func (ms *members) order() []*member {
	order := []*member{ms.at}
	for _, i := range rand.Perm(len(ms.all)) {
		m := ms.all[i]
		if m == ms.at {
			continue
		}
		at := 1
		for at < len(order) && !m.failed.Before(order[at].failed) {
			at++
		}
		order = append(order[:at], append([]*member{m}, order[at:]...)...)
	}
	return order
}

// leave gives up old, with all that is under way there, for next.
func (ms *members) leave(old, next *member, why error) {
	ms.mu.Lock()
	old.failed = time.Now()
	if ms.at == old {
		ms.choose([]*member{next})
	}
	c := old.conn
	old.conn = nil
	ms.mu.Unlock()
	ms.b.opts.Logger.Warn("etcd: another member is used from now on", "instead of", old.endpoint, "member", next.endpoint, "error", why)
	if c == nil {
		return
	}
	c.cancel(errSick)
	if !ms.b.spawn(c.close) {
		c.close()
	}
}

// detach takes c out of use. It reports whether it was in use.
func (ms *members) detach(c *conn) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if c.member.conn != c {
		return false
	}
	c.member.conn = nil
	return true
}

// close ends all connections. The backend's life is over: none is added.
func (ms *members) close() {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	for _, m := range ms.all {
		if m.conn != nil {
			m.conn.close()
		}
	}
}

// see notes the term of an answer. When it has changed, what was proposed to the
// leader of before may be lost, and the server would be silent about it for as
// long as seven seconds: so it is given up after a grace.
func (ms *members) see(term uint64) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if term <= ms.term {
		return
	}
	first := ms.term == 0
	ms.term = term
	if c := ms.at.conn; c != nil && !first {
		before := c.renew()
		time.AfterFunc(electedGrace, func() { before.cancel(errElected) })
	}
}

// ask reads through the consensus, by the member in use and, when that takes
// long, by the others. The first one that answers is used from then on. The error
// is that of the member in use.
func (ms *members) ask(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ms.mu.Lock()
	q := &question{ms: ms, order: ms.order(), began: time.Now()}
	ms.mu.Unlock()
	q.answers = make(chan answer, len(q.order))
	q.next(ctx)
	pause := time.NewTicker(askNext)
	defer pause.Stop()
	for q.asked < len(q.order) || q.open > 0 {
		select {
		case a := <-q.answers:
			if q.take(a); a.err == nil {
				return q.settle(ctx, a.from)
			}
			q.next(ctx)
		case <-pause.C:
			q.next(ctx)
		case <-ctx.Done():
			if q.failed == nil {
				return ctx.Err()
			}
			return q.failed
		}
	}
	return q.failed
}

// question is one ask.
type question struct {
	ms      *members
	order   []*member
	began   time.Time
	asked   int // of order
	open    int // asked, and has not answered
	answers chan answer
	first   *answer // of the member in use
	failed  error
}

type answer struct {
	from *member
	err  error
}

// next asks the next member.
func (q *question) next(ctx context.Context) {
	if q.asked == len(q.order) {
		return
	}
	m := q.order[q.asked]
	q.asked++
	if q.ms.b.spawn(func() { q.answers <- answer{m, q.ms.b.probe(ctx, m)} }) {
		q.open++
	}
}

func (q *question) take(a answer) {
	q.open--
	if a.from == q.order[0] {
		q.first = &a
	}
	if a.err != nil && (q.failed == nil || a.from == q.order[0]) {
		q.failed = a.err
	}
}

// settle leaves the member in use for winner, unless it answers too.
func (q *question) settle(ctx context.Context, winner *member) error {
	old := q.order[0]
	if winner == old {
		return nil
	}
	late := time.NewTimer(time.Until(q.began.Add(sickAfter)))
	defer late.Stop()
	for q.first == nil {
		select {
		case a := <-q.answers:
			q.take(a)
			continue
		case <-late.C:
		case <-ctx.Done():
			return nil
		}
		break
	}
	switch {
	case q.first == nil:
		q.ms.leave(old, winner, errSick)
	case q.first.err != nil:
		q.ms.leave(old, winner, q.first.err)
	}
	return nil
}

// probe reads through the consensus by m. A refusal is an answer too.
func (b *Backend) probe(ctx context.Context, m *member) error {
	c, err := b.join(ctx, m)
	if err == nil {
		if _, down := b.health.state(); down != nil {
			c.client.ActiveConnection().ResetConnectBackoff()
		}
		var resp *pb.RangeResponse
		resp, err = c.kv.Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{Key: []byte(b.space.bars), KeysOnly: true})
		b.expired(c, err)
		if err == nil {
			b.members.see(resp.Header.RaftTerm)
		}
	}
	if err == nil || refused(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", m.endpoint, err)
}
