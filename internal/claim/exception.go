package claim

import "slices"

// Exception is a claim that is not made under some conditions, by documentation.
type Exception struct {
	Rules []Rule
	// All of these conditions were made, and one of Any, if it has some.
	All, Any []Condition
	// Why two may hold a lock, if they may, is one sentence or more for a verdict, and
	// begins in lower case.
	Why string
}

// Exempt finds the exception from a rule under the conditions that were made:
// the one that asks for most of them. ok is false if the claim holds.
//
// The token is a rule of its own. Where two may hold a lock, a resource that
// checks tokens is safe unless Token is exempt, too.
func (t Terms) Exempt(rule Rule, made []Condition) (e Exception, ok bool) {
	for _, known := range slices.Concat(t.Exceptions, everywhere) {
		if slices.Contains(known.Rules, rule) && known.met(made) && (!ok || known.asks() > e.asks()) {
			e, ok = known, true
		}
	}
	return e, ok
}

func (e Exception) met(made []Condition) bool {
	has := func(c Condition) bool { return slices.Contains(made, c) }
	for _, c := range e.All {
		if !has(c) {
			return false
		}
	}
	return len(e.Any) == 0 || slices.ContainsFunc(e.Any, has)
}

// asks is of how many conditions e makes sure.
func (e Exception) asks() int { return len(e.All) + min(1, len(e.Any)) }

// Twice is what goes when a store lets somebody in while a lease is valid, which
// its holder then loses, with more.
func Twice(more ...Rule) []Rule { return append([]Rule{Overlap, Linear, Signal, Survives}, more...) }

// TwiceForLong is what goes when a store may also forget the second grant and
// remember the first, with more.
func TwiceForLong(more ...Rule) []Rule { return Twice(append(more, Renewal)...) }

// Late is what goes when nothing is granted for a while, with more.
func Late(more ...Rule) []Rule { return append([]Rule{Standby, Woken, Granted}, more...) }

// everywhere are the exceptions of all backends.
var everywhere = []Exception{
	{
		Rules: Twice(), All: []Condition{EndedByHand},
		Why: "the holder learns of it with its next renewal, or by a watch; the next grant has a higher token",
	},
	{
		Rules: TwiceForLong(Token), All: []Condition{TwoStores},
		Why: "two hosts may each be at one of them, which no host can notice. One host compares what it connects to, stays at one, " +
			"warns, and its Check fails",
	},
	{Rules: Late(Survives, Deadline), All: []Condition{HostStopped}},
}
