package scenario

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockbench/lockbench/bench/host"
	"github.com/lockbench/lockbench/bench/record"
)

var takeover = Scenario{
	Name:      "takeover",
	Proves:    "how long nobody leads after the leader's process was killed (SIGKILL at a random moment), while another process waits",
	Processes: true,
	Mode:      "kill-host",
	Hosts:     2,
	Clients:   []int{1},
	Takes:     func(in Input) time.Duration { return kills * (startUp + settled + phaseSpan(in)/2) },
	Run:       runTakeover,
}

const (
	// kills is how many leaders of one cell are killed in one run.
	kills = 3
	// settled is the least time that a candidate has to enter the queue before
	// the leader is killed.
	settled = 100 * time.Millisecond
	// phases bounds the random time until the kill, in measured times: the
	// whole renewal interval in full runs, part of it in quick ones.
	phases = 4
	// startUp is about how long a host process takes to start.
	startUp = 150 * time.Millisecond
)

func phaseSpan(in Input) time.Duration { return min(in.TTL/3, phases*in.Measure) }

// succession is a leader and the candidate that waits for its end.
type succession struct {
	in       Input
	leader   *host.Process
	next     *host.Process
	attempts []record.Attempt // that of the leader is the last one
	took     []int64
}

func runTakeover(ctx context.Context, in Input) (cell record.Cell, err error) {
	ctx, cancel := context.WithTimeout(ctx, kills*(in.TTL+grace))
	defer cancel()
	s := &succession{in: in}
	defer func() { err = errors.Join(err, s.end(ctx)) }()
	if s.leader, err = host.Start(ctx, in.Host); err != nil {
		return cell, err
	}
	began := in.Clock.Now()
	granted := s.acquire(ctx, s.leader, 0)
	if s.attempts = append(s.attempts, granted.Attempt); granted.err != nil {
		return cell, fmt.Errorf("%w: %w", ErrNothingDone, granted.err)
	}
	for range kills {
		if err := s.succeed(ctx); err != nil {
			return s.cell(began), err
		}
	}
	return s.cell(began), nil
}

// succeed kills the leader while the next one waits, and waits for its grant.
func (s *succession) succeed(ctx context.Context) (err error) {
	if s.next, err = host.Start(ctx, s.in.Host); err != nil {
		return err
	}
	answer := make(chan grant, 1)
	candidate := int32(len(s.attempts))
	go func() { answer <- s.acquire(ctx, s.next, candidate) }()
	select {
	case g := <-answer: // before the kill: either an error, or for the checker to find
		s.attempts = append(s.attempts, g.Attempt)
		return fmt.Errorf("the candidate did not wait: %w", errors.Join(g.err, ErrNothingDone))
	case <-time.After(settled + rand.N(phaseSpan(s.in))):
	}
	killed := s.in.Clock.Now()
	if err := s.leader.Kill(); err != nil {
		return errors.Join(err, (<-answer).err)
	}
	last := &s.attempts[len(s.attempts)-1]
	last.Ended, last.Done, last.End = killed, s.in.Clock.Now(), record.EndKilled
	g := <-answer
	s.attempts = append(s.attempts, g.Attempt)
	if g.err != nil {
		return fmt.Errorf("%w: %w", ErrNothingDone, g.err)
	}
	s.took = append(s.took, g.Answered-killed)
	s.leader, s.next = s.next, nil
	return nil
}

// grant is an attempt of a host, with its error.
type grant struct {
	record.Attempt
	err error
}

// acquire asks one host for the lock and records its attempt. It needs no
// lock: the times are taken on this side of the host's pipe.
func (s *succession) acquire(ctx context.Context, h *host.Process, client int32) grant {
	g := grant{Attempt: record.Attempt{Client: client, Asked: s.in.Clock.Now(), Outcome: record.Failed}}
	g.Token, g.err = h.Acquire(ctx, s.in.Names[0], s.in.TTL, s.in.TTL+grace)
	g.Answered = s.in.Clock.Now()
	if g.err == nil {
		g.Outcome = record.Granted
	}
	return g
}

func (s *succession) cell(began int64) record.Cell {
	c := record.Cell{
		Cycles: len(s.took), Elapsed: time.Duration(s.in.Clock.Now() - began), Attempts: s.attempts,
		Latencies: map[string][]int64{"takeover": s.took}, Values: map[string]float64{},
	}
	if len(s.took) > 0 {
		c.Values["max-ns/takeover"] = float64(slices.Max(s.took))
	}
	return c
}

// end closes the hosts that live, on a budget of its own.
func (s *succession) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var err error
	for _, h := range []*host.Process{s.leader, s.next} {
		if h != nil {
			err = errors.Join(err, h.Close(ctx))
		}
	}
	return err
}
