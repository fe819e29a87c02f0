package claim_test

import (
	"slices"
	"testing"
	"time"
	"unicode"

	"github.com/lockbench/lockbench/internal/claim"
)

// exceptions are those of all backends, by the name of one; "" for everywhere.
func exceptions() map[string][]claim.Exception {
	all := map[string][]claim.Exception{"": claim.Everywhere}
	for _, backend := range claim.Backends() {
		all[backend] = claim.TermsOf(backend).Exceptions
	}
	return all
}

// TestExceptionsAreWellFormed: each is from rules that are claimed, under
// conditions that are known, and says why and by which source. Nothing is exempt
// without a condition.
func TestExceptionsAreWellFormed(t *testing.T) {
	for backend, some := range exceptions() {
		for _, e := range some {
			if len(e.Rules) == 0 || len(e.All) == 0 {
				t.Errorf("%s: exempt from %v under %v", backend, e.Rules, e.All)
			}
			for _, r := range e.Rules {
				if claim.Of(r).Rule != r {
					t.Errorf("%s under %v: rule %q is not claimed", backend, e.All, r)
				}
			}
			for _, c := range slices.Concat(e.All, e.Any) {
				if c.Says() == "" {
					t.Errorf("%s: condition %q is not known", backend, c)
				}
			}
			if e.Source.String() == "" || e.Why == "" {
				t.Errorf("%s under %v: source %d, because %q", backend, e.All, e.Source, e.Why)
			}
		}
	}
	for _, backend := range claim.Backends() {
		for _, c := range claim.Claims {
			if e, ok := claim.TermsOf(backend).Exempt(c.Rule, nil); ok {
				t.Errorf("%s is exempt from %s without a condition: %+v", backend, c.Rule, e)
			}
		}
	}
}

// TestConditionsAreUsed: each is named once, and by an exception.
func TestConditionsAreUsed(t *testing.T) {
	all := claim.Conditions()
	for i, c := range all {
		used := false
		for _, some := range exceptions() {
			used = used || slices.ContainsFunc(some, func(e claim.Exception) bool {
				return slices.Contains(e.All, c) || slices.Contains(e.Any, c)
			})
		}
		if !used || slices.Contains(all[:i], c) {
			t.Errorf("%q is in no exception, or there twice", c)
		}
	}
}

func TestExempt(t *testing.T) {
	for _, tt := range []struct {
		backend string
		rule    claim.Rule
		made    []claim.Condition
		want    []claim.Condition // of the exception; nil for none
	}{
		{"redis", claim.Overlap, []claim.Condition{claim.ReplicaPromoted}, []claim.Condition{claim.ReplicaPromoted}},
		{"redis", claim.Linear, []claim.Condition{claim.ReplicasWaited, claim.ReplicaPromoted}, []claim.Condition{claim.ReplicaPromoted, claim.ReplicasWaited}},
		{"redis", claim.Overlap, []claim.Condition{claim.ReplicasWaited}, nil},
		{"redis", claim.Token, []claim.Condition{claim.ReplicaPromoted}, nil},
		{"redis", claim.Token, []claim.Condition{claim.ClockBack}, nil},
		{"redis", claim.Token, []claim.Condition{claim.ClockBack, claim.DataLost}, []claim.Condition{claim.ClockBack}},
		{"redlock", claim.Overlap, []claim.Condition{claim.DataLost}, nil},
		{"redlock", claim.Overlap, []claim.Condition{claim.DataLost, claim.QuarantineOff}, []claim.Condition{claim.QuarantineOff}},
		{"redlock", claim.Token, []claim.Condition{claim.ClockForward, claim.Unfenced}, []claim.Condition{claim.Unfenced}},
		{"mysql", claim.Overlap, []claim.Condition{claim.LeaderPaused}, nil},
		{"etcd", claim.Signal, []claim.Condition{claim.LeaderPaused}, []claim.Condition{claim.LeaderPaused}},
		{"etcd", claim.Effect, []claim.Condition{claim.OldData}, nil},
		{"etcd", claim.Overlap, []claim.Condition{claim.ClockForward}, nil},
		{"memory", claim.Overlap, []claim.Condition{claim.PluginDied}, nil},
		{"memory", claim.Survives, []claim.Condition{claim.PluginDied}, []claim.Condition{claim.PluginDied}},
		{"mysql", claim.Survives, []claim.Condition{claim.PluginDied}, nil},
		{"none", claim.Deadline, []claim.Condition{claim.HostStopped}, []claim.Condition{claim.HostStopped}},
	} {
		e, ok := claim.TermsOf(tt.backend).Exempt(tt.rule, tt.made)
		if ok != (tt.want != nil) || !slices.Equal(e.All, tt.want) {
			t.Errorf("%s, %s under %v: %v, %v", tt.backend, tt.rule, tt.made, e.All, ok)
		}
	}
}

// TestClaimsAreWellFormed: each says what it promises, and where a bound comes
// from that it has.
func TestClaimsAreWellFormed(t *testing.T) {
	seen := map[claim.Rule]bool{}
	for _, c := range claim.Claims {
		if c.Rule == "" || seen[c.Rule] || c.Says == "" || c.Shows == "" || !unicode.IsLower(rune(c.Says[0])) && c.Rule != claim.Deadline {
			t.Errorf("%q: incomplete or twice: %q, %q", c.Rule, c.Says, c.Shows)
		}
		seen[c.Rule] = true
		bounded := c.Within(claim.Setting{TTL: 10 * time.Second}) > 0
		if bounded != (c.Time != "") || bounded != (c.From != "") || c.Must && !bounded {
			t.Errorf("%s: a bound %v, %q from %q", c.Rule, bounded, c.Time, c.From)
		}
	}
}

// TestBounds: the bounds are what their texts say.
func TestBounds(t *testing.T) {
	ttl := 10 * time.Second
	for _, tt := range []struct {
		rule    claim.Rule
		setting claim.Setting
		want    time.Duration
	}{
		{claim.Signal, claim.Setting{}, 50 * time.Millisecond},
		{claim.Orphaned, claim.Setting{Terms: claim.TermsOf("redis"), TTL: ttl}, 10500 * time.Millisecond},
		{claim.Orphaned, claim.Setting{Terms: claim.TermsOf("etcd"), TTL: ttl}, 12 * time.Second},
		{claim.Deadline, claim.Setting{}, 3 * time.Second},
		{claim.Leaked, claim.Setting{}, 2 * time.Minute},
		{claim.Survives, claim.Setting{TTL: ttl}, 4500 * time.Millisecond},
		{claim.Survives, claim.Setting{TTL: time.Second}, 0},
		{claim.Survives, claim.Setting{TTL: time.Millisecond}, 0},
		{claim.Woken, claim.Setting{Terms: claim.TermsOf("redis"), TTL: ttl}, 1500 * time.Millisecond},
		{claim.Woken, claim.Setting{Terms: claim.TermsOf("redlock"), TTL: ttl, Absent: 2}, 2 * time.Second},
		{claim.Woken, claim.Setting{Terms: claim.TermsOf("mysql"), TTL: 2 * time.Second, Absent: 1}, 2500 * time.Millisecond},
		{claim.Woken, claim.Setting{Terms: claim.TermsOf("mysql"), TTL: ttl, Absent: 1}, 3500 * time.Millisecond},
		{claim.Woken, claim.Setting{Terms: claim.TermsOf("etcd"), TTL: ttl, Absent: 1}, 4500 * time.Millisecond},
		{claim.Granted, claim.Setting{Terms: claim.TermsOf("mysql"), TTL: ttl}, 11500 * time.Millisecond},
		{claim.Granted, claim.Setting{Terms: claim.TermsOf("redlock"), TTL: ttl, MaxTTL: time.Minute}, 12500*time.Millisecond + 60600*time.Millisecond},
		{claim.Standby, claim.Setting{Terms: claim.TermsOf("etcd"), TTL: ttl, Swallowed: true}, 21 * time.Second},
		{claim.Granted, claim.Setting{Terms: claim.TermsOf("redis"), TTL: ttl, Failures: 9}, 34 * time.Second},
	} {
		if got := claim.Of(tt.rule).Within(tt.setting); got != tt.want {
			t.Errorf("%s with %+v: %v, want %v", tt.rule, tt.setting, got, tt.want)
		}
	}
	if claim.AcquireGrace > 1600*time.Millisecond || claim.ReleaseGrace > 2*time.Second || claim.ProcessGone > 8*time.Second {
		t.Errorf("%v, %v and %v are more than is documented", claim.AcquireGrace, claim.ReleaseGrace, claim.ProcessGone)
	}
	for failures, want := range map[int]time.Duration{0: 0, 1: 0, 2: 75 * time.Millisecond, 8: 3 * time.Second, 9: 22500 * time.Millisecond} {
		if got := claim.PluginBack(failures); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}
