package cluster

import (
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// poll reads through the consensus, by the member in use and, when that takes
// long, by the others. The first one that answers is used from then on. The error
// is that of the member in use.
func (c *Cluster) poll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	q := &question{c: c, order: c.order(), began: time.Now()}
	c.mu.Unlock()
	q.answers = make(chan answer, len(q.order))
	q.next(ctx)
	pause := time.NewTicker(askNext)
	defer pause.Stop()
	for q.asked < len(q.order) || q.open > 0 {
		select {
		case a := <-q.answers:
			if q.take(a); a.err == nil {
				return q.switchTo(ctx, a.from)
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

// question is one poll.
type question struct {
	c       *Cluster
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
	if q.c.Go(func() { q.answers <- answer{m, q.c.probe(ctx, m)} }) {
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

// switchTo leaves the member in use for winner, unless it answers too.
func (q *question) switchTo(ctx context.Context, winner *member) error {
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
		q.c.leave(old, winner, errSick)
	case q.first.err != nil:
		q.c.leave(old, winner, q.first.err)
	}
	return nil
}

// probe reads through the consensus by m. A refusal is an answer too.
func (c *Cluster) probe(ctx context.Context, m *member) error {
	conn, err := c.join(ctx, m)
	if err == nil {
		if _, down := c.State(); down != nil {
			conn.client.ActiveConnection().ResetConnectBackoff()
		}
		var resp *pb.RangeResponse
		resp, err = conn.kv.Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{Key: []byte(c.opts.Probe), KeysOnly: true})
		c.expired(conn, err)
		if err == nil {
			c.seeTerm(resp.Header.RaftTerm)
		}
	}
	if err == nil || Refused(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", m.endpoint, err)
}
