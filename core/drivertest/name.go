package drivertest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

func nameCases() []Case {
	return []Case{
		{
			Name: "K6 names are kept as they are and never collide",
			Explain: `Any valid UTF-8 of 1 to 512 bytes is a name of its own: names that differ in case, a trailing blank, a brace or a
percent sign are different locks, and each is shown as it was given.`,
			Limit: 5 * time.Minute,
			Run:   namesApart,
		},
		{
			Name:    "K6 names of two namespaces never collide",
			Explain: `Two namespaces of one store (prefixes, tables) share no lock, whatever its name.`,
			Needs:   []Need{NeedOther},
			Limit:   5 * time.Minute,
			Run:     namespacesApart,
		},
		{
			Name:    "K6 list takes its prefix literally",
			Explain: `List shows the held locks whose names start with the prefix, whatever characters the store's own patterns give a meaning.`,
			Excuse:  needsCapability(driver.CapAdmin),
			Run:     listPrefix,
		},
		{
			Name: "K7 no TTL is rounded",
			Explain: `The store keeps the TTL that was asked for, to the step that the properties state: one that is silently rounded up
blocks others for longer than agreed, one that is rounded down loses the lease.`,
			Run: keptTTLs,
		},
	}
}

// oddNames returns names that a backend may encode wrongly as a key, pattern, hash slot, path or
// quoted string. A store that compares names by a collation may treat some of them as equal.
func oddNames() []string {
	return []string{
		"a", "A", "a ", "a  ", " a", "a\t", "a\n", "a\r\n", "a\x00", "a\x00b", "\x00", "a\x7f", "\x01\x1f",
		"a{b}", "{a}b", "{a}", "{}a", "a}", "}{", "a{b", "b", "a/b", "a//b", "/a", "a/", "..", ".", "a:b", ":a", "a:",
		"~", "~a", "~~a", "%", "a%", "%61", "a%25", "a%2525", "%7Ea", "a_", "ab", "a*", "a?", "a[b]", "a\\", "a\\\\", "a'b", `a"b`, "a`b", "a;--",
		"é", "e\u0301", "É", "e", "ß", "ss", "i", "I", "İ", "ı", "ﬀ", "ff", "🔒", "🔒🔑", "\u200b", "a\u200b", "\ufeffa", "日本語",
		"token", "lock:a", "null", "NULL", "0", "00", "1", "1.0", "+1",
		strings.Repeat("x", 512), strings.Repeat("x", 511), strings.Repeat("x", 511) + "y", strings.Repeat("語", 170), strings.Repeat("{", 512), strings.Repeat("\x00", 512),
	}
}

func namesApart(t T, h *Harness) {
	bs := h.backends(t, 2)
	var held []*attempt
	for _, name := range oddNames() {
		a := h.attempt(bs[0], name, h.ttl(5*time.Minute)) // the TTL is long, because requests to a distant store are slow
		if err := a.try(t); err != nil {
			t.Fatalf("name %q collides with another: %v", name, err)
		}
		held = append(held, a)
	}
	for _, a := range held {
		wantHeld(t, h.attempt(bs[1], a.Name, a.TTL).try(t), "TryAcquire of a held lock")
		if at := inspect(t, bs[1], a.Name); at.Name != a.Name || at.Owner != a.Owner {
			t.Errorf("the lock %q of owner %s is shown as %q, %s", a.Name, a.Owner, at.Name, describe(at))
		}
	}
	wantListed(t, bs[1], "", oddNames())
	for i, a := range held {
		if i%2 == 0 {
			a.mustRelease(t)
		}
	}
	for i, a := range held {
		if at := inspect(t, bs[1], a.Name); at.Held() != (i%2 == 1) {
			t.Errorf("every second name was released; %q: %s", a.Name, describe(at))
		}
	}
}

// wantListed checks that List emits the names in want. If b is no driver.Admin, it checks nothing.
func wantListed(t T, b driver.Backend, prefix string, want []string) {
	admin := driver.AdminOf(b)
	if admin == nil {
		return
	}
	var got []string
	err := call(t, func(ctx context.Context) error {
		return admin.List(ctx, prefix, func(h driver.Holder) bool {
			got = append(got, h.Name)
			return true
		})
	})
	wantNil(t, err, "List")
	want = slices.Clone(want)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("List(%q) shows\n%q, want\n%q", prefix, got, want)
	}
}

func namespacesApart(t T, h *Harness) {
	here, there := h.Open(t), h.Other(t)
	var held []*attempt
	for _, name := range oddNames() {
		a, b := h.attempt(here, name, h.lasting().TTL), h.attempt(there, name, h.ttl(5*time.Minute))
		for _, x := range []*attempt{a, b} {
			if err := x.try(t); err != nil {
				t.Fatalf("name %q collides across namespaces: %v", name, err)
			}
		}
		held = append(held, b)
		a.mustRelease(t)
	}
	for _, b := range held {
		b.wantHeldBy(t, "after the release in the other namespace")
	}
	wantListed(t, here, "", nil)
	wantListed(t, there, "", oddNames())
}

func listPrefix(t T, h *Harness) {
	b := h.Open(t)
	names := []string{"jobs/1", "jobs/2", "job", "Jobs/1", "a%b", "a_b", "a*b", "a?b", "axb", "a[x]b", "ab", "{t}1", "~t1"}
	for _, name := range names {
		h.attempt(b, name, h.lasting().TTL).must(t)
	}
	for prefix, want := range map[string][]string{
		"": names, "jobs/": {"jobs/1", "jobs/2"}, "job": {"job", "jobs/1", "jobs/2"}, "a%": {"a%b"}, "a_": {"a_b"}, "a*": {"a*b"},
		"a?": {"a?b"}, "a[x": {"a[x]b"}, "{t}": {"{t}1"}, "~": {"~t1"}, "a": {"a%b", "a_b", "a*b", "a?b", "axb", "a[x]b", "ab"}, "none": nil,
	} {
		wantListed(t, b, prefix, want)
	}
	seen := 0
	err := call(t, func(ctx context.Context) error {
		return driver.AdminOf(b).List(ctx, "", func(driver.Holder) bool { seen++; return seen < 3 })
	})
	if err != nil || seen != 3 {
		t.Errorf("List was told to stop at 3: it showed %d, %v", seen, err)
	}
}

func keptTTLs(t T, h *Harness) {
	b := h.Open(t)
	low, step, high := h.props.TTLMin, h.props.TTLStep, h.props.TTLMax
	if low <= 0 || step <= 0 || high < low {
		t.Fatalf("the properties state a TTL from %v to %v in steps of %v", low, high, step)
	}
	keeps := func(a *attempt, ask func()) {
		sent := time.Now()
		ask()
		at := inspect(t, b, a.Name)
		if lost := time.Since(sent); at.TTL > a.TTL || at.TTL < a.TTL-lost-step {
			t.Errorf("a TTL of %v was asked for %v ago, and the store says another %v", a.TTL, lost, at.TTL)
		}
	}
	ttls := []time.Duration{h.ttl(30*time.Second) + step, h.ttl(4321*time.Millisecond) + step, h.ttl(time.Minute + 7*time.Millisecond), high}
	slices.Sort(ttls)
	for _, ttl := range ttls {
		a := h.attempt(b, "jobs", ttl)
		keeps(a, func() { a.must(t) })
		a.TTL = h.ttl(ttl/2 + step)
		keeps(a, func() { a.mustRenew(t) })
		a.mustRelease(t)
	}
	shortest := h.attempt(b, "shortest", low)
	h.wantLife(t, b, "shortest", low, func() { shortest.must(t) })
}
