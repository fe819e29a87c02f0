package claim

import (
	"slices"
	"testing"
	"time"
	"unicode"
)

// TestExceptionsAreWellFormed: each is of a backend that is known, from rules
// that are claimed, under conditions that are known, and says why and by which
// source. Nothing is exempt without a condition.
func TestExceptionsAreWellFormed(t *testing.T) {
	for _, e := range exceptions {
		if e.Backend != "" && !slices.Contains(Backends(), e.Backend) {
			t.Errorf("%q is no backend", e.Backend)
		}
		if len(e.Rules) == 0 || len(e.All) == 0 {
			t.Errorf("%s: exempt from %v under %v", e.Backend, e.Rules, e.All)
		}
		for _, r := range e.Rules {
			if Of(r).Rule != r {
				t.Errorf("%s under %v: rule %q is not claimed", e.Backend, e.All, r)
			}
		}
		for _, c := range slices.Concat(e.All, e.Any) {
			if c.Says() == "" {
				t.Errorf("%s: condition %q is not known", e.Backend, c)
			}
		}
		if e.Source.String() == "" || e.Why == "" {
			t.Errorf("%s under %v: source %d, because %q", e.Backend, e.All, e.Source, e.Why)
		}
	}
	for _, backend := range Backends() {
		for _, c := range claims {
			if e, ok := Exempt(backend, c.Rule, nil); ok {
				t.Errorf("%s is exempt from %s without a condition: %+v", backend, c.Rule, e)
			}
		}
	}
}

// TestConditionsAreUsed: each is named once, and by an exception.
func TestConditionsAreUsed(t *testing.T) {
	all := Conditions()
	for i, c := range all {
		used := slices.ContainsFunc(exceptions, func(e Exception) bool {
			return slices.Contains(e.All, c) || slices.Contains(e.Any, c)
		})
		if !used || slices.Contains(all[:i], c) {
			t.Errorf("%q is in no exception, or there twice", c)
		}
	}
}

func TestExempt(t *testing.T) {
	for _, tt := range []struct {
		backend string
		rule    Rule
		made    []Condition
		want    []Condition // of the exception; nil for none
	}{
		{"redis", Overlap, []Condition{ReplicaPromoted}, []Condition{ReplicaPromoted}},
		{"Redis", Linear, []Condition{ReplicasWaited, ReplicaPromoted}, []Condition{ReplicaPromoted, ReplicasWaited}},
		{"redis", Overlap, []Condition{ReplicasWaited}, nil},
		{"redis", Token, []Condition{ReplicaPromoted}, nil},
		{"redis", Token, []Condition{ClockBack}, nil},
		{"redis", Token, []Condition{ClockBack, DataLost}, []Condition{ClockBack}},
		{"redlock", Overlap, []Condition{DataLost}, nil},
		{"redlock", Overlap, []Condition{DataLost, QuarantineOff}, []Condition{QuarantineOff}},
		{"redlock", Token, []Condition{ClockForward, Unfenced}, []Condition{Unfenced}},
		{"mysql", Overlap, []Condition{LeaderPaused}, nil},
		{"etcd", Signal, []Condition{LeaderPaused}, []Condition{LeaderPaused}},
		{"etcd", Effect, []Condition{OldData}, nil},
		{"etcd", Overlap, []Condition{ClockForward}, nil},
		{"memory", Overlap, []Condition{PluginDied}, nil},
		{"memory", Survives, []Condition{PluginDied}, []Condition{PluginDied}},
		{"mysql", Survives, []Condition{PluginDied}, nil},
		{"none", Deadline, []Condition{HostStopped}, []Condition{HostStopped}},
	} {
		e, ok := Exempt(tt.backend, tt.rule, tt.made)
		if ok != (tt.want != nil) || !slices.Equal(e.All, tt.want) {
			t.Errorf("%s, %s under %v: %v, %v", tt.backend, tt.rule, tt.made, e.All, ok)
		}
	}
}

// TestClaimsAreWellFormed: each says what it promises, and where a bound comes
// from that it has.
func TestClaimsAreWellFormed(t *testing.T) {
	seen := map[Rule]bool{}
	for _, c := range claims {
		if c.Rule == "" || seen[c.Rule] || c.Says == "" || c.Shows == "" || !unicode.IsLower(rune(c.Says[0])) && c.Rule != Deadline {
			t.Errorf("%q: incomplete or twice: %q, %q", c.Rule, c.Says, c.Shows)
		}
		seen[c.Rule] = true
		bounded := c.Within(Setting{Backend: "redis", TTL: 10 * time.Second}) > 0
		if bounded != (c.Time != "") || bounded != (c.From != "") || c.Must && !bounded {
			t.Errorf("%s: a bound %v, %q from %q", c.Rule, bounded, c.Time, c.From)
		}
	}
}

// TestBounds: the bounds are what their texts say.
func TestBounds(t *testing.T) {
	ttl := 10 * time.Second
	for _, tt := range []struct {
		rule    Rule
		setting Setting
		want    time.Duration
	}{
		{Signal, Setting{}, 50 * time.Millisecond},
		{LeftBehind, Setting{Backend: "redis", TTL: ttl}, 10500 * time.Millisecond},
		{LeftBehind, Setting{Backend: "etcd", TTL: ttl}, 12 * time.Second},
		{Deadline, Setting{}, 3 * time.Second},
		{LeftOver, Setting{}, 2 * time.Minute},
		{Survives, Setting{TTL: ttl}, 4500 * time.Millisecond},
		{Survives, Setting{TTL: time.Second}, 0},
		{Survives, Setting{TTL: time.Millisecond}, 0},
		{Woken, Setting{Backend: "redis", TTL: ttl}, 1500 * time.Millisecond},
		{Woken, Setting{Backend: "redlock", TTL: ttl, Absent: 2}, 2 * time.Second},
		{Woken, Setting{Backend: "mysql", TTL: 2 * time.Second, Absent: 1}, 2500 * time.Millisecond},
		{Woken, Setting{Backend: "mysql", TTL: ttl, Absent: 1}, 3500 * time.Millisecond},
		{Woken, Setting{Backend: "etcd", TTL: ttl, Absent: 1}, 4500 * time.Millisecond},
		{Granted, Setting{Backend: "mysql", TTL: ttl}, 11500 * time.Millisecond},
		{Granted, Setting{Backend: "redlock", TTL: ttl, MaxTTL: time.Minute}, 12500*time.Millisecond + 60600*time.Millisecond},
		{Standby, Setting{Backend: "etcd", TTL: ttl, Swallowed: true}, 21 * time.Second},
		{Granted, Setting{Backend: "redis", TTL: ttl, Failures: 9}, 34 * time.Second},
	} {
		if got := Of(tt.rule).Within(tt.setting); got != tt.want {
			t.Errorf("%s with %+v: %v, want %v", tt.rule, tt.setting, got, tt.want)
		}
	}
	if AcquireGrace > 1600*time.Millisecond || ReleaseGrace > 2*time.Second || ProcessGone > 8*time.Second {
		t.Errorf("%v, %v and %v are more than is documented", AcquireGrace, ReleaseGrace, ProcessGone)
	}
	if got := TryLimit(time.Second); got != time.Second+AcquireGrace || TryLimit(ttl) != 3*time.Second+AcquireGrace {
		t.Errorf("a try takes %v and %v", got, TryLimit(ttl))
	}
	for failures, want := range map[int]time.Duration{0: 0, 1: 0, 2: 75 * time.Millisecond, 8: 3 * time.Second, 9: 22500 * time.Millisecond} {
		if got := PluginBack(failures); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}

// TestForHasTheExceptions: a backend's claims come with what it excepts, and
// others stay without.
func TestForHasTheExceptions(t *testing.T) {
	for _, c := range For("etcd") {
		paused := slices.ContainsFunc(c.Exceptions, func(e Exception) bool { return slices.Contains(e.All, LeaderPaused) })
		if paused != slices.Contains(twice, c.Rule) {
			t.Errorf("%s: %+v", c.Rule, c.Exceptions)
		}
	}
	if len(Of(Overlap).Exceptions) > 0 || Of("nothing").Rule != "" {
		t.Error("a claim by itself has exceptions, or there is one of a rule that is none")
	}
}
