package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockbench/lockbench/bench/internal/load"
	"github.com/lockbench/lockbench/bench/internal/results"
	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

var contend = Scenario{
	Name:       "contend",
	Doc:        "hand-over time, fairness and longest wait of callers that want one lock: those of 2 and 8 host processes, and of one, which hold it for 5 ms, or for as long as --hold says; and what the server is asked for a grant and while all wait. A caller that has released asks again after the next grant",
	MinClients: contendLeast,
	Workloads:  contendWorkloads,
	Takes:      func(in Input) time.Duration { return in.WarmUp + contendSpan(in) + idleFor(in) },
	Run:        runContend,
}

const (
	// holdFor is the time for which a caller holds the lock unless the user sets another time.
	holdFor = 5 * time.Millisecond
	// contendFor*Measure is the shortest length of the scenario. In a shorter time, libraries that
	// poll would get too few grants.
	contendFor = 2
	// hostsFor is the shortest length of the scenario if the hosts are separate processes.
	hostsFor = time.Second
	// turnsEach is the number of grants that each caller can get if all callers get equally many. With
	// fewer grants, the fairness would depend on when the measured time begins and ends.
	turnsEach = 3
)

func contendWorkloads(a Overrides) []Workload {
	var out []Workload
	for _, h := range hostsOf(a, 1, 2, 8) {
		out = append(out, product([]int{h}, contendClients(a, h), []int{0}, orUsual(a.Hold, holdFor))...)
	}
	return out
}

// contendClients returns the numbers of callers in each host, with one number for each workload.
// For one host, it omits numbers below contendLeast, because so few callers do not contend.
func contendClients(a Overrides, hosts int) []int {
	switch {
	case len(a.Clients) > 0 && hosts == 0:
		return slices.DeleteFunc(slices.Clone(a.Clients), func(n int) bool { return n < contendLeast })
	case len(a.Clients) > 0:
		return a.Clients
	case hosts == 0:
		return []int{32}
	case a.Quick:
		return []int{1}
	}
	return []int{1, 8}
}

const contendLeast = 2

func contenders(in Input) int { return in.Clients * max(1, in.Hosts) }

func contendSpan(in Input) time.Duration {
	span := max(contendFor*in.Measure, turnsEach*time.Duration(contenders(in))*in.Hold)
	if in.Hosts > 0 {
		span = max(span, hostsFor)
	}
	return span
}

func runContend(ctx context.Context, in Input) (cell results.Cell, err error) {
	in.Names = in.Names[:1]
	cs, end, err := contending(ctx, in)
	if err != nil {
		return cell, err
	}
	defer func() { err = errors.Join(err, end()) }()
	span := contendSpan(in)
	bounded, cancel := context.WithTimeout(ctx, in.WarmUp+span+idleFor(in)+graceOf(in.Measure))
	defer cancel()
	from := in.Clock.Now() + int64(in.WarmUp)
	until := from + int64(span)
	asking, stop := context.WithTimeout(bounded, in.WarmUp+span)
	defer stop()
	turns := &turns{next: make(chan struct{})}
	counted := in.count(bounded, from, until-int64(span/10)) // counting ends before callers stop asking
	passing := in.watch()
	load.Workers(len(cs), func(i int) { take(bounded, asking, cs[i], turns, in.Workload) })
	passing.end()
	c := <-counted

	attempts, first := load.Collect(cs)
	cell = results.Cell{Attempts: attempts, Elapsed: span}
	grants := grantsIn(attempts, from, until)
	cell.Cycles = len(grants)
	cell.Latencies = map[string][]int64{"wait": waits(grants)}
	if ctx.Err() != nil {
		return cell, ctx.Err()
	}
	if len(grants) < 2 {
		return cell, fmt.Errorf("%w within %v: %w", ErrNothingDone, span, orStalled(first))
	}
	cell.Values = map[string]float64{
		"grants/s":    float64(len(grants)) / span.Seconds(),
		"jain":        jain(grants, len(cs)),
		"max-ns/wait": float64(longestWait(attempts, from, until)),
	}
	passing.note(&cell, "handoff", handoffs(grants))
	if n := c.grants(attempts); c.err == nil && n > 0 {
		cell.Values["commands/grant"] = c.Run / float64(n)
		cell.Values["sent-commands/grant"] = c.Sent / float64(n)
		cell.Values["server-ns/grant"] = c.Busy / float64(n)
	}
	if idleFor(in) <= queued {
		return cell, nil
	}
	// If function idle fails, the cell lacks only the figure of idle. All other figures are known.
	if perSecond, err := idle(bounded, in, cs); err == nil {
		cell.Values["idle-commands/s"] = perSecond
	}
	cell.Attempts, _ = load.Collect(cs)
	return cell, ctx.Err()
}

// contending makes callers in in.Hosts host processes, or in this process if in.Hosts is 0.
func contending(ctx context.Context, in Input) (cs []*load.Caller, end func() error, err error) {
	hosts, end, err := startHosts(ctx, in)
	if err != nil {
		return nil, nil, err
	}
	if len(hosts) == 0 {
		cs, err = callers(in)
		return cs, end, err
	}
	for _, h := range hosts {
		own := in
		own.Locker = h
		more, err := callers(own)
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		for _, c := range more {
			c.Client = int32(len(cs))
			cs = append(cs, c)
		}
	}
	return cs, end, nil
}

// take acquires the lock, holds it and releases it, again and again until the context called asking
// ends. After a release, the caller asks again only when another caller has the lock. If the caller
// asked at once, a library that polls would usually grant it the lock again.
func take(ctx, asking context.Context, c *load.Caller, t *turns, s Workload) {
	uncancelled := context.WithoutCancel(ctx)
	for asking.Err() == nil {
		lease, ok := c.Acquire(asking)
		if !ok {
			load.Pause(asking)
			continue
		}
		next := t.granted()
		proc.Sleep(ctx, s.Hold)
		c.Release(uncancelled, lease)
		select {
		case <-next:
		case <-asking.Done():
		}
	}
}

// turns tells a caller when the lock was granted again after the caller's own grant.
type turns struct {
	mu   sync.Mutex
	next chan struct{} // closed at the next grant
}

func (t *turns) granted() (next <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.next)
	t.next = make(chan struct{})
	return t.next
}

// grantsIn returns the attempts that were granted and released between the times from and until, in
// the order of their grants. Both times are included.
func grantsIn(attempts []results.Attempt, from, until int64) []results.Attempt {
	var out []results.Attempt
	for _, a := range attempts {
		if a.Outcome == results.Granted && a.End == results.EndReleased && a.Answered >= from && a.Done <= until {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b results.Attempt) int { return cmp.Compare(a.Answered, b.Answered) })
	return out
}

// handoffs returns one span for each hand-over: from a call of release to the end of an acquire.
func handoffs(grants []results.Attempt) []span {
	var out []span
	for i := 1; i < len(grants); i++ {
		out = append(out, span{grants[i-1].Ended, grants[i].Answered})
	}
	return out
}

func waits(grants []results.Attempt) []int64 {
	var out []int64
	for _, g := range grants {
		out = append(out, g.Answered-g.Asked)
	}
	return out
}

// longestWait returns the longest wait. It includes waits that had no grant by the end of the
// measured time. Quantiles leave out such waits, because a wait that was cut off would seem short.
func longestWait(attempts []results.Attempt, from, until int64) (longest int64) {
	for _, a := range attempts {
		if a.Outcome != results.Failed && a.Answered >= from {
			longest = max(longest, min(a.Answered, until)-a.Asked)
		}
	}
	return longest
}

// jain returns the fairness index of the grants per caller. It is 1 if all callers had equally many
// grants, and 1/n if one caller had all (Jain, Chiu, Hawe: A quantitative measure of fairness,
// DEC-TR-301, 1984).
func jain(grants []results.Attempt, clients int) float64 {
	count := make([]float64, clients)
	for _, g := range grants {
		count[g.Client]++
	}
	var sum, squares float64
	for _, n := range count {
		sum += n
		squares += n * n
	}
	return sum * sum / (float64(clients) * squares)
}

// queued is the time in which all waiters enter the store's queue.
const queued = 50 * time.Millisecond

// idleFor returns the time for which callers wait for a held lock, or 0 if no server counts
// commands. It is at most half of the TTL, because a library without renewal would lose the lock.
func idleFor(in Input) time.Duration {
	if in.Commands == nil {
		return 0
	}
	return min(queued+in.Measure/2, in.TTL/2)
}

// The idle function makes one caller hold a lock, and makes all other callers wait for that lock.
// It returns how many commands per second each server gets in this time.
func idle(ctx context.Context, in Input, cs []*load.Caller) (float64, error) {
	lease, ok := cs[0].Acquire(ctx)
	if !ok {
		return 0, fmt.Errorf("%w: %w", ErrNothingDone, orStalled(cs[0].Err))
	}
	waiting, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		load.Workers(len(cs)-1, func(i int) {
			if lease, ok := cs[i+1].Acquire(waiting); ok { // the checker reports this grant if cs[0] still had the lock
				cs[i+1].Release(context.WithoutCancel(ctx), lease)
			}
		})
	}()
	proc.Sleep(ctx, queued)
	from := in.Clock.Now()
	c := <-in.count(ctx, from, from+int64(idleFor(in)-queued))
	stop()
	<-done
	cs[0].Release(context.WithoutCancel(ctx), lease)
	return c.Run / time.Duration(c.until-c.from).Seconds(), c.err
}

// counted is the average work of a server in the time between from and until.
type counted struct {
	from, until int64
	servers.Served
	err error
}

// count reads the servers' counters at the times from and until, and sends their difference on the
// returned channel. If the servers have no counters, it sends zeros at once.
func (in Input) count(ctx context.Context, from, until int64) <-chan counted {
	out := make(chan counted, 1)
	if in.Commands == nil {
		out <- counted{}
		return out
	}
	go func() {
		proc.Sleep(ctx, time.Duration(from-in.Clock.Now()))
		before, err := in.Commands(ctx)
		c := counted{from: in.Clock.Now(), err: err}
		proc.Sleep(ctx, time.Duration(until-in.Clock.Now()))
		after, err := in.Commands(ctx)
		c.until, c.Served, c.err = in.Clock.Now(), after.Since(before), errors.Join(c.err, err)
		out <- c
	}()
	return out
}

func (c counted) grants(attempts []results.Attempt) (n int) {
	for _, a := range attempts {
		if a.Outcome == results.Granted && a.Answered >= c.from && a.Answered < c.until {
			n++
		}
	}
	return n
}
