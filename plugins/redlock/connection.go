package redlock

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"runtime"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// connection is the connection over which one node votes. Only that node's goroutine uses it.
//
// The server's run id, which changes at each start, was read over this connection. A restart breaks
// the connection, so all votes over this connection come from the server with this run id.
type connection struct {
	n      *node
	conn   *goredis.Conn
	marker string // the text that must be in the node's hash at markerKey; "" if quarantine is off
	args   []any
	looked time.Time // when the server's settings were last read
}

// lookEvery is the interval at which a host asks an idle node for its clock, and any node for its
// settings. So the host soon notices that the node is gone or has lost its data.
const lookEvery = time.Second

// serve sends the node's queued requests until the connection breaks or the
// backend closes.
func (c *connection) serve(ctx context.Context) error {
	look := time.NewTimer(lookEvery)
	defer look.Stop()
	for {
		// Let other goroutines run first, so that they can add their requests to this script.
		runtime.Gosched()
		if more, err := c.next(ctx); err != nil {
			return err
		} else if more {
			continue
		}
		pause := lookEvery
		if held := &c.n.held; held.episode != "" {
			pause = min(pause, time.Until(held.next))
		}
		look.Reset(pause)
		select {
		case <-c.n.more:
		case <-look.C:
			if err := c.vote(ctx, nil); err != nil {
				return err
			}
		case <-c.n.b.background.Done():
			if more, err := c.next(ctx); err != nil || !more {
				return err
			}
		}
	}
}

// next sends the queued requests, and reports whether there were any.
func (c *connection) next(ctx context.Context) (bool, error) {
	if time.Since(c.looked) >= lookEvery {
		if err := c.lookAgain(ctx); err != nil {
			return false, err
		}
	}
	taken, refusal := c.n.take(), c.n.store.Refusal()
	batch := taken[:0]
	for _, b := range taken {
		if refusal != nil && b.grantee != "" {
			c.n.answer(b, vote{answer: unsent, err: refusal})
			continue
		}
		batch = append(batch, b)
	}
	if len(batch) == 0 {
		return len(taken) > 0, nil
	}
	return true, c.vote(ctx, batch)
}

// lookAgain reads the server's settings and role again, because they may change while
// the connection stays open. A replica, for example, answers reads but cannot vote.
func (c *connection) lookAgain(ctx context.Context) error {
	c.looked = time.Now()
	s, err := c.n.server.ReadAgain(c.soon(ctx), c.conn)
	if err != nil {
		return c.late(err)
	}
	if err := s.Unsafe(c.n.addr, redisnode.Alone, true); err != nil {
		c.n.links.Leave(c.looked)
		return err
	}
	c.n.refuse(s.Evicts(c.n.addr))
	return nil
}

// late makes a timeout error say that node_timeout is the time limit for a reply.
func (c *connection) late(err error) error {
	if !redisnode.TimedOut(err) {
		return err
	}
	return fmt.Errorf("no reply within node_timeout (%v), which must be longer than a round trip to %s takes: %w",
		c.n.b.opts.NodeTimeout, c.n.addr, redisnode.Explain(err))
}

// vote sends a batch of requests in one script, and delivers the node's votes. Even an empty batch
// reads the node's clock. During a quarantine, vote checks whether the quarantine is over. If vote
// returns an error, the caller must close the connection.
func (c *connection) vote(ctx context.Context, batch []*quorumRequest) error {
	answers, admitted, err := c.ask(ctx, batch)
	if err != nil {
		v := vote{answer: unknown, err: err}
		if errors.Is(err, driver.ErrNotSent) {
			v.answer = unsent
		}
		for _, b := range batch {
			if v.answer == unknown && b.grantee != "" {
				c.n.uncertain.Put(b.grantee, struct{}{})
			}
			c.n.answer(b, v)
		}
		return err
	}
	for i, b := range batch {
		c.n.answer(b, decode(b.kind, answers[i]))
	}
	held := c.n.held.episode != ""
	if c.marker != "" && (held == admitted || held && !time.Now().Before(c.n.held.next)) {
		return c.checkQuarantine(ctx)
	}
	return nil
}

// ask sends a batch of requests. The result admitted reports whether the node's votes count.
func (c *connection) ask(ctx context.Context, batch []*quorumRequest) (answers []any, admitted bool, err error) {
	sent, began := c.n.b.clock(), time.Now()
	reply, err := c.run(ctx, "evalsha", voteScript.SHA, batch)
	if goredis.HasErrorPrefix(err, "NOSCRIPT") {
		reply, err = c.run(ctx, "eval", voteScript.Text, batch)
	}
	f := redisnode.FieldsOf(reply)
	if len(f) == 3 {
		answers, _ = f[2].([]any)
	}
	if err == nil {
		err = redisnode.AstrayInside(answers)
	}
	if redisnode.Astray(err) {
		c.n.links.Leave(began)
	}
	if err != nil {
		if err = c.late(redisnode.Explain(err)); len(batch) == 0 { // no request was sent
			err = redisnode.Unsent(err)
		}
		return nil, false, err
	}
	now, votes := f.Number(0), f.Number(1)
	if now < 0 || votes < 0 || len(answers) != len(batch) {
		return nil, false, redisnode.ErrReply(reply)
	}
	c.n.ahead.Store(now - c.n.b.clock())
	c.n.maxAhead.Store(now - sent)
	return answers, votes == 1, nil
}

// run sends the script (its text by EVAL, or its digest by EVALSHA) with the arguments of the
// batch. It waits for the reply for at most NodeTimeout.
func (c *connection) run(ctx context.Context, command, script string, batch []*quorumRequest) (any, error) {
	args := append(c.args[:0], command, script, len(batch)+1, markerKey)
	for _, b := range batch {
		args = append(args, b.key)
	}
	lowest, highest, index := hints(batch)
	args = append(args, c.n.b.keys.Head("")...)
	args = append(args, c.marker, lowest, highest, index)
	for _, b := range batch {
		args = append(args, b.argv[:]...)
	}
	c.args = args[:0]
	cmd := goredis.NewCmd(ctx, args...)
	_ = c.conn.Process(c.soon(ctx), cmd)
	return cmd.Result()
}

func (c *connection) soon(ctx context.Context) context.Context {
	return deadline{ctx, time.Now().Add(c.n.b.opts.NodeTimeout)}
}

// deadline is a context with a deadline but no timer. It needs no timer, because go-redis sets the
// deadline on the connection.
type deadline struct {
	context.Context
	at time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.at, true }

//go:embed lua
var luaFiles embed.FS

var (
	lua        = redisnode.Lua(luaFiles)
	voteScript = redisnode.NewScript(lua("head"), lua("queue"), "refuse = refuse", redisnode.Rights+lua("slowpath"), lua("vote"))
	waitScript = redisnode.QueueScript(lua("head"), lua("queue"), lua("wait"))
	admitLua   = lua("admit")
)
