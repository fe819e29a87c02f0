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
	type answer struct {
		from *member
		err  error // an error of the client library
	}
	order := c.order()
	answers := make(chan answer, len(order))
	ask := func(members []*member) {
		for _, m := range members {
			c.Go(func() { answers <- answer{m, c.probe(ctx, m)} })
		}
	}
	ask(order[:1])
	used, others := order[0], order[1:] // others are the members to ask after the first event
	errs := map[*member]error{}         // errors of the members that have answered
	late, tooLate := time.After(askNext), time.After(sickAfter)
	var (
		failed error   // error of the member in use or, until it fails, of the first that failed
		winner *member // the first other member that answered without an error
		gone   error   // why the member in use is left if another member answers
	)
	for ctx.Err() == nil && len(errs) < len(order) {
		select {
		case a := <-answers:
			errs[a.from] = a.err
			switch {
			case a.err == nil && a.from == used:
				return nil
			case a.err == nil:
				winner = cmp.Or(winner, a.from)
			case failed == nil || a.from == used:
				failed = fmt.Errorf("%s: %w", a.from.endpoint, a.err)
			}
			gone = cmp.Or(errs[used], gone)
		case <-late:
		case <-tooLate:
			gone = errSick
		case <-ctx.Done():
		}
		ask(others)
		others = nil
		if winner != nil && gone != nil {
			c.leave(used, winner, gone)
			return nil
		}
	}
	if winner != nil {
		return nil
	}
	var work sync.WaitGroup
	for _, m := range order {
		work.Go(func() { c.redial(m, errs[m]) })
	}
	work.Wait()
	return cmp.Or(failed, ctx.Err())
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
