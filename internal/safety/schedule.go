package safety

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"

	"github.com/lockbench/lockbench/internal/claim"
	"github.com/lockbench/lockbench/internal/fault"
	"github.com/lockbench/lockbench/internal/store"
)

// schedule is the endless order in which faults are injected into one backend in a soak:
// all of them once, in an order that the seed decides, then all of them in
// another one.
type schedule struct {
	faults []fault.Fault
	random *rand.Rand
	left   []fault.Fault // of this turn
}

func newSchedule(backend string, seed uint64) *schedule {
	return &schedule{faults: bearable(backend), random: seeded(backend, seed, "schedule")}
}

// seeded is the source of what is random about one backend.
func seeded(backend string, seed uint64, what string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(backend + " " + what)) // never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func (s *schedule) next() fault.Fault {
	if len(s.left) == 0 {
		s.left = slices.Clone(s.faults)
		s.random.Shuffle(len(s.left), func(i, j int) { s.left[i], s.left[j] = s.left[j], s.left[i] })
	}
	f := s.left[0]
	s.left = s.left[1:]
	return f
}

// bearable are the faults that a backend must bear, over and over, on the same
// servers: of no documented double grant, and after which these are what they
// were before. A clock that is set right again jumps, a replica that was
// promoted stays the master, and keys that were evicted are gone. Sentinel and
// Cluster are other servers.
func bearable(backend string) []fault.Fault {
	return slices.DeleteFunc(fault.All(), func(f fault.Fault) bool {
		_, documented := store.Of(backend).Exempt(claim.Overlap, f.Produces)
		return documented || f.Control || f.Config != nil || store.Of(backend).Fits(f) != "" ||
			slices.ContainsFunc(f.Needs, func(p fault.Capability) bool { return slices.Contains(unbearable, p) })
	})
}

var unbearable = []fault.Capability{fault.CapClock, fault.CapReplica, fault.CapSentinel, fault.CapSlots, fault.CapEvict}

// Turn names the faults of the first turn of a soak on a backend, in their
// order.
func Turn(backend string, seed uint64) []string {
	s := newSchedule(backend, seed)
	var names []string
	for range s.faults {
		names = append(names, s.next().Name)
	}
	return names
}
