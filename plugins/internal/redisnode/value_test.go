package redisnode

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		h := parseHolder("n", leaseID(r)+valueTail(label, value), 5, 2)
		want := fmt.Sprintf("%+v", driver.Holder{Name: "n", Owner: "o-1", Label: label, Token: token, TTL: 5 * time.Millisecond, Waiters: 2})
		got := h
		got.Value = nil
		if fmt.Sprintf("%+v", got) != want || string(h.Value) != string(value) {
			t.Fatalf("%q and %q came back as %+v", label, value, h)
		}
	})
}
