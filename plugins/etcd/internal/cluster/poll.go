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
	began := time.Now()
	c.mu.Lock()
	order := c.order()
	c.mu.Unlock()
	type answer struct {
		from *member
		err  error // an error of the client library
	}
	answers := make(chan answer, len(order))
	errs := map[*member]error{} // errors of the members that have answered
	used, asked := order[0], 0  // the member in use, and the number of members asked
	var (
		failed error            // error of the member in use or, until it fails, of the first that failed
		winner *member          // the first other member that answered without an error
		late   <-chan time.Time // fires when the member in use is too late; nil until there is a winner
	)
	next := func() {
		if winner != nil || asked == len(order) {
			return
		}
		m := order[asked]
		asked++
		c.Go(func() { answers <- answer{m, c.probe(ctx, m)} })
	}
	next()
	pause := time.NewTicker(askNext)
	defer pause.Stop()
	for ctx.Err() == nil && len(errs) < len(order) {
		select {
		case a := <-answers:
			errs[a.from] = a.err
			switch {
			case a.err == nil && a.from == used:
				return nil
			case a.err == nil && winner == nil:
				winner, late = a.from, time.After(time.Until(began.Add(sickAfter)))
			case a.err != nil && (failed == nil || a.from == used):
				failed = fmt.Errorf("%s: %w", a.from.endpoint, a.err)
			}
			if err := errs[used]; err != nil && winner != nil {
				c.leave(used, winner, err)
				return nil
			}
			next()
		case <-late:
			c.leave(used, winner, errSick)
			return nil
		case <-pause.C:
			next()
		case <-ctx.Done():
		}
	}
	if winner != nil {
		return nil
	}
	failed = cmp.Or(failed, ctx.Err())
	var work sync.WaitGroup
	for _, m := range order[:asked] {
		work.Go(func() { c.redial(m, errs[m]) })
	}
	work.Wait()
	return failed
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
