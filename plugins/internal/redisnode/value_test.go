package redisnode

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lockbench/lockbench/core/driver"
)

func TestForeignValues(t *testing.T) {
	for raw, shown := range map[string]string{
		"":                          "(empty)",
		"token-of-redislock":        "token-of-redislock",
		"a b":                       "a b",
		"o 0 0:":                    "o 0 0:",
		"o 7 x:":                    "o 7 x:",
		"o 7 3:ab":                  "o 7 3:ab",
		"o 7 -1:ab":                 "o 7 -1:ab",
		"o 7++1:a":                  "o 7++1:a",
		"no/owner 7 0:":             "no/owner 7 0:",
		"o 18446744073709551616 0:": "o 18446744073709551616 0:",
		"\x1b[31m\xff":              "?[31m?",
		strings.Repeat("é", 100):    strings.Repeat("é", 32) + "...",
	} {
		h := parseHolder("n", raw, -1, 0)
		if h.Owner != shown || h.Token != 0 || h.Label != "" || h.TTL >= 0 || !h.Held() {
			t.Errorf("%q is %+v", raw, h)
		}
	}
	if h := parseHolder("n", "", -2, 3); h.Held() || h.Name != "" {
		t.Errorf("no key is %+v", h)
	}
	if h := parseHolder("n", "o 7 0:", 0, 0); h.TTL != time.Millisecond {
		t.Errorf("a last fraction of a millisecond is %v", h.TTL)
	}
}

func FuzzValue(f *testing.F) {
	f.Add("host:1", []byte("v"), uint64(7))
	f.Add("3:abc", []byte(" 1 2:"), uint64(1)<<63)
	f.Add("", []byte{}, uint64(1))
	f.Fuzz(func(t *testing.T, label string, value []byte, token uint64) {
		if token == 0 || len(label) > 256 {
			t.Skip("core refuses it")
		}
		r := driver.Request{Owner: "o-1", Token: token}
		h := parseHolder("n", LeaseID(r.Owner, r.Token)+ValueTail(label, value), 5, 2)
		want := fmt.Sprintf("%+v", driver.Holder{Name: "n", Owner: "o-1", Label: label, Token: token, TTL: 5 * time.Millisecond, Waiters: 2})
		got := h
		got.Value = nil
		if fmt.Sprintf("%+v", got) != want || string(h.Value) != string(value) {
			t.Fatalf("%q and %q came back as %+v", label, value, h)
		}
	})
}

// unused matches the beginning of a value with the "+" of an unused grant.
var unused = regexp.MustCompile(`^(\S+ [0-9]+)\+`)

// FuzzForeign checks that a key's text is read as a lease of this package only if the package would
// write exactly that text. Any other text must be read as a holder that can be printed.
func FuzzForeign(f *testing.F) {
	f.Add("o-1 7 2:lbv", int64(5))
	f.Add("o 07 00:", int64(-1))
	f.Add("o 0 0:", int64(-2))
	f.Add("\x1b[31mred", int64(1<<62))
	f.Add("o 7+2:lbv", int64(5))
	f.Fuzz(func(t *testing.T, raw string, ms int64) {
		h := parseHolder("n", raw, ms, 3)
		switch {
		case ms == -2:
			if h.Held() {
				t.Errorf("no key is %+v", h)
			}
			return
		case !h.Held() || h.Name != "n" || h.TTL == 0 || ms >= 0 && h.TTL < -1:
			t.Errorf("%q for %d ms is %+v", raw, ms, h)
		case h.Token == 0 && (h.Owner == "" || len(h.Owner) > 100 || strings.ContainsFunc(h.Owner, unicode.IsControl) || !utf8.ValidString(h.Owner)):
			t.Errorf("%q is shown as %q", raw, h.Owner)
		case h.Token != 0 && LeaseID(h.Owner, h.Token)+ValueTail(h.Label, h.Value) != unused.ReplaceAllString(raw, "$1 "):
			t.Errorf("%q is read as %+v", raw, h)
		}
		vote := ParseVote("n", raw, ms)
		if strings.HasPrefix(raw, vote.Owner+" 0 ") {
			vote.Token = 0
		}
		if vote.Token != h.Token && h.Token != 0 {
			t.Errorf("%q is read as %+v, and as a vote as %+v", raw, h, vote)
		}
	})
}

// FuzzReply checks that any reply of the server can be decoded, and that only a reply with a token
// counts as a grant.
func FuzzReply(f *testing.F) {
	f.Add(int64(7), "o 7 0:", int64(100), byte(0), byte(4))
	f.Add(int64(CodeHeld), "o 7 0:", int64(100), byte(1), byte(4))
	f.Add(int64(CodeTurn), "", int64(-5), byte(2), byte(1))
	f.Fuzz(func(t *testing.T, code int64, raw string, ms int64, shape, n byte) {
		fields := []any{code, raw, ms, int64(1)}
		if shape&4 != 0 {
			fields = []any{raw, code, []any{ms}, nil}
		}
		var reply any = fields[:n%5]
		switch shape % 4 {
		case 1:
			reply = code
		case 2:
			reply = raw
		}
		res := decode("n", reply)
		if _, token := reply.(int64); token != (res.Err == nil) || !token && res.Token != 0 {
			t.Errorf("%v is %+v", reply, res)
		}
		queued(reply)
		if h, err := decodeHolder("n", reply); err != nil && h.Held() {
			t.Errorf("%v is %+v, %v", reply, h, err)
		}
	})
}
