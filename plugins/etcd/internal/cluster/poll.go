package cluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// poll sends a linearizable read to the member in use. If the read fails or takes long, poll also
// asks the other members. The first member that answers replaces the member in use, unless the
// member in use answers within sickAfter. If no member answers, poll connects anew to members that
// are silent or cannot serve, and returns the error of the member in use.
func (c *Cluster) poll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &poll{c: c, began: time.Now(), errs: map[*member]error{}}
	c.mu.Lock()
	p.order = c.order()
	c.mu.Unlock()
	p.answers = make(chan answer, len(p.order))
	p.next(ctx)
	pause := time.NewTicker(askNext)
	defer pause.Stop()
	var failed error // error of the member in use or, until it fails, of the member that failed first
	for len(p.errs) < len(p.order) {
		select {
		case a := <-p.answers:
			if p.errs[a.from] = a.err; a.err == nil {
				p.compare(ctx, a.from)
				return nil
			}
			if failed == nil || a.from == p.order[0] {
				failed = fmt.Errorf("%s: %w", a.from.endpoint, a.err)
			}
			p.next(ctx)
		case <-pause.C:
			p.next(ctx)
		case <-ctx.Done():
			p.redial()
			return cmp.Or(failed, ctx.Err())
		}
	}
	p.redial()
	return failed
}

// redial makes a new connection to each asked member that needs one.
func (p *poll) redial() {
	var work sync.WaitGroup
	for _, m := range p.order[:p.asked] {
		err := p.errs[m]
		work.Go(func() { p.c.redial(m, err) })
	}
	work.Wait()
}

// poll is the state of one call of Cluster.poll.
type poll struct {
	c       *Cluster
	order   []*member // the member in use is the first
	began   time.Time
	asked   int // how many members of order were asked
	answers chan answer
	errs    map[*member]error // errors of the members that have answered
}

type answer struct {
	from *member
	err  error // an error of the client library
}

func (p *poll) next(ctx context.Context) {
	if p.asked == len(p.order) {
		return
	}
	m := p.order[p.asked]
	p.asked++
	p.c.Go(func() { p.answers <- answer{m, p.c.probe(ctx, m)} })
}

// compare replaces the member in use by winner, unless the member in use answers before sickAfter.
func (p *poll) compare(ctx context.Context, winner *member) {
	old := p.order[0]
	late := time.NewTimer(time.Until(p.began.Add(sickAfter)))
	defer late.Stop()
	for {
		if err, answered := p.errs[old]; answered {
			if err != nil {
				p.c.leave(old, winner, err)
			}
			return
		}
		select {
		case a := <-p.answers:
			p.errs[a.from] = a.err
		case <-late.C:
			p.c.leave(old, winner, errSick)
			return
		case <-ctx.Done():
			return
		}
	}
}

// probe sends a linearizable read to the member m. A refusal counts as an answer.
func (c *Cluster) probe(ctx context.Context, m *member) error {
	conn, err := c.join(ctx, m)
	if err == nil {
		var resp *pb.RangeResponse
		resp, err = conn.kv.Range(clientv3.WithRequireLeader(ctx), c.question())
		c.expired(conn, err)
		if err == nil {
			if err = c.admit(conn, resp); err != nil {
				return err
			}
			c.seeTerm(resp.Header.RaftTerm)
		}
	}
	if isAnswer(err) {
		return nil
	}
	return err
}
