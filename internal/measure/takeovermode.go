package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// mode is one way in which a leader ends.
type mode struct {
	name string
	doc  string // one line
	// proxied modes harm connections: every candidate has proxies of its own.
	proxied bool
	// server modes harm the server and not the leader, who may stay the leader.
	server bool
	// expires modes leave the lease to its TTL: a new leader before its end is a
	// finding. In the others somebody releases it.
	expires bool
	// waits is about how long a takeover lasts; nil: no time worth counting.
	waits  func(ttl time.Duration) time.Duration
	inject func(ctx context.Context, s *election, h *incident) error
	// heal repairs what was harmed when others lead; nil: nothing to do.
	heal func(ctx context.Context, s *election, h *incident) error
}

var killHost = mode{
	name: "kill-host",
	doc:  "SIGKILL to the host process; its plugin releases what it held",
	inject: func(_ context.Context, s *election, h *incident) error {
		return s.killVictim(h, h.victim.Kill)
	},
	heal: replace,
}

// ttlLeft is how long a lease lives that is harmed at a random phase, on
// average.
func ttlLeft(ttl time.Duration) time.Duration { return ttl * 5 / 6 }

var modes = []mode{
	{
		name: "resign",
		doc:  "the leader releases in order",
		inject: func(ctx context.Context, s *election, h *incident) error {
			if err := h.victim.Release(ctx); err != nil {
				return err
			}
			proc.Sleep(ctx, between) // as after each term
			return s.campaign(h.victim)
		},
	},
	killHost,
	{
		name:    "kill-machine",
		doc:     "connections are cut off without a FIN, then host and plugin are stopped and killed",
		proxied: true, expires: true, waits: ttlLeft,
		inject: func(_ context.Context, s *election, h *incident) error {
			return errors.Join(h.victim.cut(), s.killVictim(h, h.victim.KillMachine))
		},
		heal: replace,
	},
	{
		name:    "freeze",
		doc:     "SIGSTOP to the host process, which goes on when another one leads",
		expires: true, waits: ttlLeft,
		inject: func(_ context.Context, _ *election, h *incident) error { return h.victim.Freeze() },
		heal: func(ctx context.Context, s *election, h *incident) error {
			resumed := s.in.Clock.Now()
			if err := h.victim.Resume(); err != nil {
				return err
			}
			return s.noticed(ctx, h, resumed)
		},
	},
	{
		name:    "partition",
		doc:     "the leader's connections to the store are cut off and later healed; it goes on running",
		proxied: true, expires: true, waits: ttlLeft,
		inject: func(_ context.Context, _ *election, h *incident) error { return h.victim.cut() },
		heal: func(ctx context.Context, s *election, h *incident) error {
			return errors.Join(s.noticed(ctx, h, 0), h.victim.heal())
		},
	},
	{
		name:   "server-restart",
		doc:    "SIGKILL to one server, which is started again at once",
		server: true,
		waits:  func(time.Duration) time.Duration { return 2 * time.Second },
		inject: func(ctx context.Context, s *election, _ *incident) error {
			return errors.Join(s.in.Server.Stop(), s.in.Server.Start(ctx))
		},
	},
	{
		name:   "server-pause",
		doc:    "one server is frozen for one and a tenth TTL",
		server: true,
		waits:  pauseOf,
		inject: func(ctx context.Context, s *election, _ *incident) error {
			if err := s.in.Server.Freeze(); err != nil {
				return err
			}
			proc.Sleep(ctx, pauseOf(s.in.TTL))
			return s.in.Server.Resume()
		},
	},
}

func pauseOf(ttl time.Duration) time.Duration { return ttl + ttl/10 }

// replace starts a candidate in place of one that is dead.
func replace(ctx context.Context, s *election, h *incident) error {
	return errors.Join(h.victim.closeProxies(), s.join(ctx))
}

// Server is the server of a backend, or one of several, that may be harmed.
type Server interface {
	// Stop ends it as a crash does; Start starts it again, with what it keeps
	// over one, and returns when it answers.
	Stop() error
	Start(ctx context.Context) error
	// Freeze stops it with its connections open until Resume.
	Freeze() error
	Resume() error
}

// NotPossible says why a mode cannot be measured with this input; "" when it
// can.
func NotPossible(in Input) string {
	m, _ := modeByName(in.Mode)
	if m.server && in.Server == nil {
		return "which harms servers and leaves yours alone"
	}
	if m.proxied {
		nowhere := func(address string) (string, error) { return address, nil }
		if _, err := kinds.Route(in.Host.Config, nowhere); err != nil {
			return fmt.Sprintf("which needs proxies: %v", err)
		}
	}
	return ""
}
