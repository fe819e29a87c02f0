package drivertest

import (
	"fmt"
	"regexp"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func refusalCases() []Case {
	return []Case{
		{
			Name: "K2 try decides once and says who holds",
			Explain: `TryAcquire of a held lock is refused at once, with a HeldError that names the holder, as it labelled itself, and what
is left of its lease.`,
			Run: saysWhoHolds,
		},
		{
			Name: "K2 a refusal carries the remaining TTL",
			Explain: `A refusal says how long the lease has yet to live. The head of the queue asks again just after it: too short, and it
asks for nothing; too long or none, and a crashed holder's lock stays unused.`,
			Run: carriesTTL,
		},
		{
			Name: "K2 a refused try leaves nothing behind",
			Explain: `A TryAcquire that was refused has no place in the queue and no claim: after the release the lock is free for
the first client that asks. And what the store keeps does not grow with the names that it has seen, whether they were
released or have expired.`,
			Run: leavesNothing,
		},
		{
			Name: "K2 inspect says what the store knows",
			Explain: `Inspect shows name, owner, label, value, token and remaining TTL of the holder, and the zero Holder when there is
none.`,
			Run: inspectHolder,
		},
		{
			Name: "L1 every grant has an owner of its own",
			Explain: `The owner is a random id made in core before the first byte is sent, one per grant, and the store keeps that very
id: whatever cleans up after a lost reply, a crash or a restart has nothing else to go by.`,
			Run: ownOwner,
		},
		{
			Name: "L1 a holder that asks again is refused and not renewed",
			Explain: `TryAcquire by the owner that holds the lock is answered as anybody's is. A store that takes it for a renewal, or
grants it again, has two grants under one owner, and the release of one frees the other.`,
			Run: askAgain,
		},
		{
			Name: "L1 a lock is not reentrant",
			Explain: `A host that holds a lock is refused the same lock, whatever label and process it shares with the holder: two
goroutines of one host exclude each other as two hosts do.`,
			Run: notReentrant,
		},
	}
}

func saysWhoHolds(t T, h *Harness) {
	cs := h.clients(t, 2)
	l := cs[0].mustTry(t, "jobs", h.lasting())
	start := time.Now()
	second, err := cs[1].try(t, "jobs", h.lasting())
	wantWithin(t, start, time.Now(), 2*time.Second, "TryAcquire of a held lock")
	if err == nil {
		t.Fatalf("token %d was granted while token %d is held", second.Token(), l.Token())
	}
	at := wantHeld(t, err, "TryAcquire of a held lock")
	if at.Owner != l.Owner() || at.Label != "conformance case" || at.TTL <= 0 || at.TTL > h.lasting().TTL {
		t.Errorf("the refusal says: %s; want owner %q, label %q, at most %v", describe(at), l.Owner(), "conformance case", h.lasting().TTL)
	}
}

func carriesTTL(t T, h *Harness) {
	bs := h.backends(t, 2)
	a := h.attempt(bs[0], "jobs", h.ttl(time.Second))
	sent := time.Now()
	a.must(t)
	replied := time.Now()
	other := h.attempt(bs[1], "jobs", h.lasting().TTL)
	for time.Since(replied) < a.TTL*3/4 {
		asked := time.Now()
		err := other.try(t)
		answered := time.Now()
		if err == nil && answered.Sub(sent) >= a.TTL {
			mistimed(t, a.TTL, "no refusal came while the lease lived")
		}
		at := wantHeld(t, err, "while the lease lives")
		most, least := a.TTL-asked.Sub(replied)+time.Millisecond, a.TTL-answered.Sub(sent)
		if at.TTL > most+h.props.TTLStep || at.TTL < least-h.props.TTLStep {
			t.Fatalf("the refusal says another %v; it is between %v and %v", at.TTL, least, most)
		}
		pause(t, a.TTL/8)
	}
}

func leavesNothing(t T, h *Harness) {
	bs := h.backends(t, 3)
	h.expired(t, bs[0], "once", 2)
	nothingLeft := h.countLeft(t, bs[0])
	const names = 20
	for i := range names {
		a := h.attempt(bs[0], fmt.Sprint("jobs ", i), h.lasting().TTL).must(t)
		for range 2 {
			wantHeld(t, h.attempt(bs[1], a.Name, a.TTL).try(t), "TryAcquire of a held lock")
		}
		if at := inspect(t, bs[0], a.Name); at.Waiters > 0 {
			t.Errorf("after refused tries: %s", describe(at))
		}
		a.mustRelease(t)
		h.attempt(bs[2], a.Name, a.TTL).must(t).mustRelease(t)
	}
	h.expired(t, bs[0], "tick", names)
	nothingLeft(fmt.Sprintf("releases, refused tries and expiries of %d locks", 2*names))
}

// If h.Leftovers is not nil, expired lets n leases expire, half of them after a release with Keep.
func (h *Harness) expired(t T, b driver.Backend, name string, n int) {
	var all []*attempt
	for i := 0; i < n && h.Leftovers != nil; i++ {
		a := h.attempt(b, fmt.Sprint(name, i), h.brief().TTL)
		if a.Keep = a.TTL; i%2 == 0 {
			a.TTL = h.lasting().TTL
		}
		if a.must(t); i%2 == 0 {
			a.mustRelease(t)
		}
		a.TTL = a.Keep
		all = append(all, a)
	}
	for _, a := range all {
		expires(t, h, a, b)
	}
}

// countLeft uses one lock and counts the entries that h.Leftovers then finds. The result is a
// function that fails the case if Leftovers later finds more entries.
func (h *Harness) countLeft(t T, b driver.Backend) (nothing func(what string)) {
	if h.Leftovers == nil {
		return func(string) {}
	}
	a := h.attempt(b, "once", h.lasting().TTL).must(t)
	refused := h.attempt(b, a.Name, a.TTL)
	wantHeld(t, refused.try(t), "TryAcquire of a held lock")
	refused.withdraw(t)
	a.mustRelease(t)
	before := h.Leftovers(t)
	return func(what string) {
		if left := h.Leftovers(t); len(left) > len(before) {
			t.Errorf("%s have left %d entries, where one lock leaves %d: %.10q", what, len(left), len(before), left)
		}
	}
}

func inspectHolder(t T, h *Harness) {
	bs := h.backends(t, 2)
	wantFree(t, bs[0], "jobs", "before the first grant")
	a := h.attempt(bs[0], "jobs", h.lasting().TTL)
	a.Label, a.Value = "日本 host\x00:1", []byte("val\x00ue\xff")
	a.must(t)
	at := inspect(t, bs[1], "jobs")
	if at.Name != a.Name || at.Owner != a.Owner || at.Label != a.Label || string(at.Value) != string(a.Value) || at.Token != a.Token {
		t.Errorf("Inspect says %q, %s, value %q; the lease is %q, owner %q, label %q, value %q, token %d",
			at.Name, describe(at), at.Value, a.Name, a.Owner, a.Label, a.Value, a.Token)
	}
	if at.TTL <= a.TTL-5*time.Second || at.TTL > a.TTL || at.TTL%time.Millisecond != 0 {
		t.Errorf("Inspect says another %v: want whole milliseconds, a little below %v", at.TTL, a.TTL)
	}
	if at.Waiters < -1 || at.Waiters > 0 {
		t.Errorf("no client waits, and Inspect says %d", at.Waiters)
	}
	a.mustRelease(t)
	if free := inspect(t, bs[1], "jobs"); free.Held() || free.Name != "" || free.Value != nil {
		t.Errorf("a free lock is the zero Holder, not %+v", free)
	}
}

var ownerForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func ownOwner(t T, h *Harness) {
	clients := h.clients(t, 2)
	seen := map[string]bool{}
	for i := range 8 {
		c := clients[i%2]
		l := c.mustTry(t, "jobs", h.lasting())
		if !ownerForm.MatchString(l.Owner()) || seen[l.Owner()] {
			t.Errorf("grant %d has owner %q: want a new id of 1 to 64 characters of [A-Za-z0-9_-]", i, l.Owner())
		}
		seen[l.Owner()] = true
		if at := inspect(t, c.b, "jobs"); at.Owner != l.Owner() {
			t.Errorf("grant %d: the lease says owner %q, the store says %s", i, l.Owner(), describe(at))
		}
		mustRelease(t, l)
	}
}

func askAgain(t T, h *Harness) {
	a := h.attempt(h.open(t), "jobs", h.ttl(1e9)).must(t)
	first := a.Token
	before := inspect(t, a.b, a.Name)
	a.TTL = h.ttl(20e9)
	at := wantHeld(t, a.try(t), "the holder asks again")
	if at.Owner != a.Owner {
		t.Errorf("the refusal names owner %q instead of the holder %q", at.Owner, a.Owner)
	}
	after := inspect(t, a.b, a.Name)
	if after.Token != first || after.TTL > before.TTL {
		t.Errorf("asking again has changed the lease from token %d, %v left to %s", first, before.TTL, describe(after))
	}
}

func notReentrant(t T, h *Harness) {
	c := h.client(t)
	l := c.mustTry(t, "jobs", h.lasting())
	second, err := c.try(t, "jobs", h.lasting())
	if err == nil {
		t.Fatalf("one host holds one lock twice: owner %s token %d, and owner %s token %d", l.Owner(), l.Token(), second.Owner(), second.Token())
	}
	wantHeld(t, err, "the second TryAcquire of the same host")
	other := h.attempt(c.b, "jobs", h.lasting().TTL)
	other.Label = inspect(t, c.b, "jobs").Label
	at := wantHeld(t, other.try(t), "another owner with the holder's label")
	if at.Owner != l.Owner() {
		t.Errorf("the refusal names %s instead of owner %s", describe(at), l.Owner())
	}
}
