package claim

import (
	"slices"
	"testing"
	"time"
)

func TestNothingIsExemptWithoutACondition(t *testing.T) {
	for _, b := range all() {
		for _, e := range b.terms.Exceptions {
			if len(e.Rules) == 0 || len(e.All) == 0 {
				t.Errorf("%s: exempt from %v under %v", b.name, e.Rules, e.All)
			}
		}
	}
}

func TestExempt(t *testing.T) {
	for _, tt := range []struct {
		backend string
		rule    Rule
		made    []Condition
		want    []Condition // conditions of the exception found; nil for none
	}{
		{"redis", Overlap, []Condition{ReplicaPromoted}, []Condition{ReplicaPromoted}},
		{"redis", Linear, []Condition{ReplicasWaited, ReplicaPromoted}, []Condition{ReplicaPromoted, ReplicasWaited}},
		{"redis", Overlap, []Condition{ReplicasWaited}, nil},
		{"redis", Token, []Condition{ReplicaPromoted}, nil},
		{"redis", Token, []Condition{ClockBack}, nil},
		{"redis", Token, []Condition{ClockBack, DataLost}, []Condition{ClockBack}},
		{"redlock", Overlap, []Condition{DataLost}, nil},
		{"redlock", Overlap, []Condition{DataLost, QuarantineOff}, []Condition{QuarantineOff}},
		{"mysql", Overlap, []Condition{LeaderPaused}, nil},
		{"etcd", Signal, []Condition{LeaderPaused}, []Condition{LeaderPaused}},
		{"etcd", Effect, []Condition{OldData}, nil},
		{"etcd", Overlap, []Condition{ClockForward}, nil},
		{"memory", Overlap, []Condition{PluginDied}, nil},
		{"memory", Survives, []Condition{PluginDied}, []Condition{PluginDied}},
		{"mysql", Survives, []Condition{PluginDied}, nil},
		{"none", Deadline, []Condition{HostStopped}, []Condition{HostStopped}},
	} {
		e, ok := TermsOf(tt.backend, nil).Exempt(tt.rule, tt.made)
		if ok != (tt.want != nil) || !slices.Equal(e.All, tt.want) {
			t.Errorf("%s, %s under %v: %v, %v", tt.backend, tt.rule, tt.made, e.All, ok)
		}
	}
}

func TestBounds(t *testing.T) {
	ttl := 10 * time.Second
	for _, tt := range []struct {
		rule    Rule
		setting Setting
		want    time.Duration
	}{
		{Orphaned, Setting{Terms: TermsOf("redis", nil), TTL: ttl}, 10500 * time.Millisecond},
		{Orphaned, Setting{Terms: TermsOf("etcd", nil), TTL: ttl}, 12 * time.Second},
		{Survives, Setting{TTL: ttl}, 4500 * time.Millisecond},
		{Survives, Setting{TTL: time.Second}, 0},
		{Survives, Setting{TTL: time.Millisecond}, 0},
		{Woken, Setting{Terms: TermsOf("redis", nil), TTL: ttl}, 1500 * time.Millisecond},
		{Woken, Setting{Terms: TermsOf("redlock", nil), TTL: ttl, Absent: 2}, 2 * time.Second},
		{Woken, Setting{Terms: TermsOf("mysql", nil), FirstSpan: 500 * time.Millisecond, TTL: ttl, Absent: 1}, 2 * time.Second},
		{Woken, Setting{Terms: TermsOf("etcd", nil), TTL: ttl, Absent: 1}, 4500 * time.Millisecond},
		{Granted, Setting{Terms: TermsOf("mysql", nil), TTL: ttl}, 11500 * time.Millisecond},
		{Granted, Setting{Terms: TermsOf("redlock", nil), TTL: ttl, MaxTTL: time.Minute}, 12500*time.Millisecond + 60600*time.Millisecond},
		{Standby, Setting{Terms: TermsOf("etcd", nil), TTL: ttl, Swallowed: true}, 21 * time.Second},
		{Granted, Setting{Terms: TermsOf("redis", nil), TTL: ttl, Failures: 9}, 34 * time.Second},
	} {
		if got := tt.rule.Within(tt.setting); got != tt.want {
			t.Errorf("%s with %+v: %v, want %v", tt.rule, tt.setting, got, tt.want)
		}
	}
	if AcquireGrace > 1600*time.Millisecond || ReleaseGrace > 2*time.Second || ProcessGone > 8*time.Second {
		t.Errorf("%v, %v and %v are more than is documented", AcquireGrace, ReleaseGrace, ProcessGone)
	}
	for failures, want := range map[int]time.Duration{0: 0, 1: 0, 2: 75 * time.Millisecond, 8: 3 * time.Second, 9: 22500 * time.Millisecond} {
		if got := PluginBack(failures); got != want {
			t.Errorf("after %d failures %v, want %v", failures, got, want)
		}
	}
}
