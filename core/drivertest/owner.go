package drivertest

import (
	"regexp"
)

func ownerCases() []Case {
	return []Case{
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
