package claim

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestFile checks that terms stay the same when they are written to a claim file and read again.
func TestFile(t *testing.T) {
	const text = `{"exceptions": [{"all": ["data-lost"], "any": ["clock-back"], "rules": ["token", "late grant"], "why": "it forgets"}],
		"forgets_data": true, "expires_late": "1.5s", "turn": "2s", "reconnects_within": "100ms"}`
	want := Terms{
		Exceptions: []Exception{{Rules: append([]Rule{Token}, Late()...), All: []Condition{DataLost}, Any: []Condition{ClockBack}, Why: "it forgets"}},
		Forgets:    true, ExpiresLate: 1500 * time.Millisecond, Turn: 2 * time.Second, Reconnects: 100 * time.Millisecond,
	}
	var got Terms
	if err := json.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, b := range append(backends, struct {
		name  string
		terms Terms
	}{"file", want}) {
		written, err := json.Marshal(b.terms)
		var again Terms
		if err == nil {
			err = json.Unmarshal(written, &again)
		}
		if err != nil || !reflect.DeepEqual(again, b.terms) {
			t.Errorf("%s: %s, %v", b.name, written, err)
		}
	}
}

func TestFileWithMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`{"forgets": true}`:             "forgets",
		`{"turn": "-1s"}`:               `"-1s" is no duration`,
		`{"exceptions": {}}`:            `"exceptions" must be another type than object`,
		`{"exceptions": [{"all": []}]}`: "exception 1 names no rule, or no condition",
		`{"exceptions": [{"all": ["data-lost"], "rules": ["overlaps"]}]}`:    `no rule "overlaps", but ["overlap" "token"`,
		`{"exceptions": [{"all": ["data-gone"], "rules": ["overlap"]}]}`:     `no condition "data-gone", but ["data-lost"`,
		`{"exceptions": [{"when": ["data-lost"], "rules": ["overlap"]}]}`:    "when",
		`{"exceptions": [{"all": ["clock-back"], "rules": ["no rule"]}], "`:  "unexpected end",
		`{"exceptions": [{"all": ["data-lost"], "any": ["x"], "rules": []}]`: "unexpected end",
	} {
		if err := json.Unmarshal([]byte(text), new(Terms)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
