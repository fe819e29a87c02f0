package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/internal/kit"
)

const (
	// signEvery is the interval between the heartbeats ("signs of life") of a process with waiters. A
	// sign stays valid longer than the store's grant to a waiter lasts, by signBeside. After its last
	// waiter began to wait, the process sends signs for another signsGoOn.
	signEvery, signBeside, signsGoOn = 200 * time.Millisecond, 100 * time.Millisecond, 2 * kit.LongestSpan
	// placeFor is the time that a waiter stays in the queue after its Wait has returned, if its
	// process gives signs of life.
	placeFor = 2 * time.Second
	// pollFrom and pollTo are the shortest and longest pause of a waiter that gets no notices.
	pollFrom, pollTo = 30 * time.Millisecond, 90 * time.Millisecond
	// idlePing is the interval between tests of the listening connection while there is no waiter.
	idlePing = 5 * time.Second
	// relisten is the pause between the end of the connection for notices and the next dial. deafFor
	// is the pause if the connection worked but no notice came over it.
	relisten, deafFor = 100 * time.Millisecond, 15 * time.Second
)

// listener receives, over a separate connection, the notices that tell waiters of grants. It also
// sends signs of life over this connection. Without these signs, the store skips the waiters of
// this process. If the connection breaks, all waiters enter their queues again.
type listener struct {
	b        *Backend
	started  time.Time // a sign's number is the time since started, in microseconds
	distance kit.Distance

	mu sync.Mutex
	// process is the name of this process in queue entries, and the name of the channel on which it
	// listens. Each new connection gets a new name, because the server may keep the advisory lock of a
	// dead connection for minutes.
	process string
	heard   bool
	deaf    error               // why no notice arrives over a working connection
	asleep  map[string]*sleeper // by owner
	waited  time.Time           // when a waiter last began to wait
	signed  time.Time           // when the last committed sign was sent
	poke    context.CancelFunc  // interrupts the present wait for a notice
	tried   chan struct{}       // closed once it is known whether notices arrive
}

// sleeper is a waiting owner. At most one notice tells the owner that it was granted the lock, or
// that it should ask for the lock. If the owner is woken while its told field is false, notices
// have stopped or resumed, so the owner enters the queue again.
type sleeper struct {
	woken chan struct{}
	told  bool
	grant driver.Grant
}

// Wait keeps r's owner in the queue until a notice arrives or the duration most is over. It enters
// the queue repeatedly, because the server removes dead waiters only while it runs a host's call.
func (b *Backend) Wait(ctx context.Context, r driver.Request, most time.Duration) (none driver.Grant, _ error) {
	if err := valid(r); err != nil {
		return none, err
	}
	defer b.listener.rise(r.Owner)
	for end := time.Now().Add(most); ; {
		grant, told, err := b.waitOnce(ctx, r, time.Until(end))
		switch {
		case err != nil && ctx.Err() != nil:
			return none, ctx.Err()
		case told || err != nil || !time.Now().Before(end):
			return grant, err
		}
	}
}

// waitOnce enters the queue once and waits. The result told is true if a notice or reply brought
// the returned grant, or said that r's owner should ask for the lock.
func (b *Backend) waitOnce(ctx context.Context, r driver.Request, most time.Duration) (none driver.Grant, told bool, _ error) {
	s, most, after := b.listener.sleep(r.Owner, most)
	r.TTL = min(r.TTL, b.listener.distance.FirstSpan())
	p := &pending{Request: r, ctx: ctx, stay: most + after}
	res := b.enters.wait(p)
	switch {
	case res.Err != nil:
		return none, false, res.Err
	case res.Token != 0:
		return driver.Grant{Token: res.Token, Sent: p.sent, For: r.TTL}, true, nil
	case p.state != 0: // r's owner should ask for the lock, unless a notice brought a grant
		select {
		case <-s.woken:
			return s.grant, true, nil
		default:
			return none, true, nil
		}
	}
	if p.left > 0 {
		most = min(most, p.left+time.Millisecond) // otherwise a dead waiter delays r's owner by two spans
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-s.woken:
		return s.grant, s.told, nil
	case <-timer.C:
		return none, false, nil
	case <-ctx.Done():
		return none, false, ctx.Err()
	case <-b.background.Done():
		return none, false, driver.ErrClosed
	}
}

// sleep registers the owner for notices, before the owner enters the queue. It returns how long the
// owner waits, and how long the owner then stays in the queue (after). If no notices arrive, the
// wait is short, because the owner polls. In that case, no sign of life shows whether the owner's
// process lives, so the store may reserve a free lock for a dead owner while it stays in the queue.
func (l *listener) sleep(owner string, most time.Duration) (_ *sleeper, wait, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.asleep[owner]
	if s == nil {
		s = &sleeper{woken: make(chan struct{})}
		l.asleep[owner] = s
	}
	if !l.heard {
		return s, min(most, pollFrom+rand.N(pollTo-pollFrom)), 2 * l.distance.FirstSpan()
	}
	if time.Since(l.waited) > signEvery && l.poke != nil {
		l.poke()
	}
	l.waited = time.Now()
	return s, min(most, l.distance.FirstSpan()), placeFor
}

func (l *listener) rise(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.asleep, owner)
}

// hearing returns the name of this process for a queue entry, or "" if the process gets no notices.
func (l *listener) hearing() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard {
		return ""
	}
	return l.process
}

// signFirst sends a sign of life before a waiter enters the queue, because the store skips a waiter
// whose process has no valid sign. It sends no sign if the last one is recent. All other signs go
// over the connection for notices, so that they show that this connection works.
func (l *listener) signFirst(ctx context.Context, c *pgxpool.Conn) error {
	return l.give(ctx, c.Conn(), 2*l.every())
}

// The method every returns the time between two signs: signEvery, or a round trip if longer.
func (l *listener) every() time.Duration { return max(signEvery, l.distance.Trip()) }

// The method within returns the time that the server may take to answer a sign of life.
func (l *listener) within() time.Duration { return 2 * l.distance.FirstSpan() }

// give sends a sign of life over c, unless notices do not arrive or the last sign is younger than the
// parameter old says. A sign counts from its sending, but only once it is committed. Otherwise
// signFirst could rely on a sign that the store does not have yet.
func (l *listener) give(ctx context.Context, c *pgx.Conn, old time.Duration) error {
	process, sent := l.hearing(), time.Now()
	l.mu.Lock()
	recent := sent.Sub(l.signed) < old
	l.mu.Unlock()
	if process == "" || recent {
		return nil
	}
	stands := l.distance.FirstSpan() + signBeside
	_, err := c.Exec(ctx, "SELECT lockbench.sign1($1::text, $2::bigint, $3::bigint)", process, sent.Sub(l.started).Microseconds(), stands.Microseconds())
	if err != nil {
		return err
	}
	l.distance.Took(time.Since(sent))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.process == process {
		l.signed = sent
	}
	return nil
}

// told handles a notice. The notice "OWNER" tells this owner to ask for the lock. The notice "OWNER
// TOKEN SIGN SPAN" grants OWNER the lock for SPAN microseconds after this process sent sign SIGN.
func (l *listener) told(notice string) {
	f := strings.Fields(notice)
	if len(f) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.asleep[f[0]]
	if s == nil {
		return
	}
	s.told = true
	if len(f) == 4 {
		token, tokenErr := strconv.ParseUint(f[1], 10, 64)
		sign, signErr := strconv.ParseInt(f[2], 10, 64)
		span, spanErr := strconv.ParseInt(f[3], 10, 64)
		if tokenErr == nil && signErr == nil && spanErr == nil {
			s.grant = driver.Grant{Token: token, Sent: l.started.Add(time.Duration(sign) * time.Microsecond), For: time.Duration(span) * time.Microsecond}
		}
	}
	delete(l.asleep, f[0])
	close(s.woken)
}

// hear records whether notices arrive and, if known, the reason why they do not. It also wakes all
// waiters, because notices sent while there was no connection are lost.
func (l *listener) hear(heard bool, deaf error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard, l.deaf, l.signed = heard, deaf, time.Time{}
	if heard || deaf != nil {
		select {
		case <-l.tried:
		default:
			close(l.tried)
		}
	}
	for owner, s := range l.asleep {
		delete(l.asleep, owner)
		close(s.woken)
	}
}

// check returns an error if notices do not arrive although the connection for them works.
func (l *listener) check(ctx context.Context) error {
	if l.b.opts.ListenAddress == noListening {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.b.opts.DialTimeout)
	defer cancel()
	select {
	case <-l.tried:
	case <-ctx.Done(): // the server was slow, so it is not known whether notices arrive
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deaf
}

// run receives notices until Close.
func (l *listener) run(c *pgxpool.Config) {
	for l.b.background.Err() == nil {
		err := l.listen(c)
		deaf := errors.Is(err, errDeaf)
		if !deaf {
			l.hear(false, nil)
		}
		if l.b.background.Err() != nil {
			return
		}
		l.b.opts.Logger.Debug("postgres: not listening", "err", err)
		pause := relisten + rand.N(relisten)
		if deaf {
			pause = deafFor
		}
		select {
		case <-l.b.background.Done():
		case <-time.After(pause):
		}
	}
}

var errDeaf = errors.New("no notice comes")

// listen makes a connection and receives notices over it until the connection ends.
func (l *listener) listen(c *pgxpool.Config) error {
	ctx, cancel := context.WithTimeout(l.b.background, l.b.opts.DialTimeout)
	defer cancel()
	own := c.ConnConfig.Copy()
	if err := c.BeforeConnect(ctx, own); err != nil {
		return err
	}
	for key := range session {
		delete(own.RuntimeParams, key) // a pooler may refuse it
	}
	// The driver calls OnNotification for a notice that arrives during any call, such as a sign.
	own.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { l.told(n.Payload) }
	conn, err := pgx.ConnectConfig(ctx, own)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), l.within())
		defer cancel()
		_ = conn.Close(ctx) // the error adds nothing: the server does not answer
	}()
	process := fmt.Sprintf("lockbench_%016x%016x", rand.Uint64(), rand.Uint64())
	l.mu.Lock()
	l.process = process
	l.mu.Unlock()
	sent := time.Now()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{process}.Sanitize()); err != nil {
		return err
	}
	l.distance.Took(time.Since(sent))
	if err := l.test(ctx, conn, process); err != nil {
		return err
	}
	// The session holds this advisory lock until it ends. The SQL function pass1 tests the lock.
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1::text, 0))", process); err != nil {
		return err
	}
	l.hear(true, nil)
	for {
		if err := l.next(conn); err != nil {
			return err
		}
	}
}

// test sends a notice over a connection of the pool. If conn does not get the notice, the two
// connections lead to different servers, or a pooler has given conn's session to another client.
func (l *listener) test(ctx context.Context, conn *pgx.Conn, process string) error {
	c, err := l.b.connection(ctx)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "SELECT pg_notify($1::text, '')", process)
	c.Release()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.within())
	defer cancel()
	if err = conn.PgConn().WaitForNotification(ctx); err == nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	l.hear(false, fmt.Errorf("postgres: %w: waiters poll, because no notice comes from where they listen, as behind a pooler in transaction mode:"+
		" listen_address has to be the server's own, or none where that is meant", driver.ErrDenied))
	return errDeaf
}

func (l *listener) next(conn *pgx.Conn) error {
	ctx, cancel := context.WithCancel(l.b.background)
	defer cancel()
	l.mu.Lock()
	waiting := time.Since(l.waited) < signsGoOn
	l.poke = cancel
	pause := idlePing
	if waiting {
		pause = max(0, l.every()-time.Since(l.signed))
	}
	l.mu.Unlock()
	timer := time.AfterFunc(pause, cancel)
	err := conn.PgConn().WaitForNotification(ctx)
	idle := !timer.Stop()
	if err != nil && (l.b.background.Err() != nil || ctx.Err() == nil) {
		return err
	}
	within, end := context.WithTimeout(l.b.background, l.within())
	defer end()
	if waiting {
		return l.give(within, conn, l.every())
	}
	if idle && err != nil {
		return conn.Ping(within)
	}
	return nil
}
