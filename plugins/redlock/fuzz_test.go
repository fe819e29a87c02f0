package redlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/plugins/internal/redisnode"
)

// FuzzConfig checks that each configuration is either refused, with an error that wraps ErrConfig,
// or names nodes with different addresses. It also checks that no lock with the configured prefix
// has the key "~redlock", which all backends share.
func FuzzConfig(f *testing.F) {
	f.Add("address=redis://:hush-hush@a,b:1,[::1]\nprefix=~", "", "redlock")
	f.Add("address=a,b,a\nmax_ttl=-1s\nnode_timeout=1h", "hush-hush", "x")
	f.Add("address=a,b,c,d\npool_size=-1", "", "~")
	f.Fuzz(func(t *testing.T, text, password, name string) {
		cfg := configtest.Read(text)
		if cfg["password"] == "" {
			cfg["password"] = password
		}
		keys, nodes, err := configured(cfg)
		if err != nil {
			if !errors.Is(err, driver.ErrConfig) {
				t.Errorf("%v is not an ErrConfig", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, a := range nodes {
			if seen[a.Addr] || a.Addr == "" {
				t.Errorf("%q has the node %q twice", text, a.Addr)
			}
			seen[a.Addr] = true
		}
		if name != "" && keys.Lock(name) == markerKey {
			t.Errorf("%q has the lock %q on the marker", text, name)
		}
	})
}

// FuzzNeedle checks that no error about a configuration shows a password, even
// one that a user wrote into the wrong key.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		_, _, err := configured(cfg)
		return err
	})
}

// configured does what open does with a configuration, and closes the clients that it makes.
func configured(cfg driver.Config) (redisnode.Keys, []redisnode.Address, error) {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return redisnode.Keys{}, nil, err
	}
	o := optionsOf(cfg, nil)
	nodes, err := o.resolve()
	for _, a := range nodes {
		if err != nil {
			break
		}
		var client *goredis.Client
		if client, err = newClient(o, a, &redisnode.Links{}); err == nil {
			err = client.Close()
		}
	}
	if err != nil {
		return redisnode.Keys{}, nil, err
	}
	keys, err := redisnode.NewKeys(o.Prefix, false)
	return keys, nodes, err
}

// FuzzVotes checks that the backend can read any reply of a node about a lock. The backend must not
// report a holder that cannot have a majority of the nodes.
func FuzzVotes(f *testing.F) {
	f.Add("o 7 0:", "o 7 0:", "p 9 1:lv", int64(100), int64(-1), int64(-2), byte(0))
	f.Add("o 0 0:", "foreign", "", int64(0), int64(1<<40), int64(-3), byte(0x3))
	f.Fuzz(func(t *testing.T, raw1, raw2, raw3 string, ms1, ms2, ms3 int64, odd byte) {
		b := &Backend{quorum: 2}
		raws, times := []string{raw1, raw2, raw3}, []int64{ms1, ms2, ms3}
		votes := make([]vote, 3)
		shown, longest := map[string]int{}, time.Duration(0)
		for i := range votes {
			reply := any([]any{int64(0), raws[i], times[i], int64(i)})
			if odd>>i&1 != 0 {
				reply = []any{raws[i], times[i]}
			}
			votes[i] = decode(kindInspect, reply)
			if votes[i].answer != seen {
				continue
			}
			if h := redisnode.ParseVote("n", raws[i], times[i]); h.Held() {
				shown[h.Owner]++
				longest = max(longest, h.TTL)
			}
		}
		h := b.holder("n", votes)
		silent := count(votes, func(v vote) bool { return v.answer != seen || strings.Contains(v.raw, " 0 ") })
		if h.Held() && shown[h.Owner]+silent < b.quorum {
			t.Errorf("%+v holds by %v", h, votes)
		}
		if h.Held() && (h.Name != "n" || h.TTL > longest) {
			t.Errorf("%+v by %v", h, votes)
		}
	})
}
