package etcd

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/driver/config"
	"github.com/lockbench/lockbench/internal/configtest"
	"github.com/lockbench/lockbench/plugins/etcd/internal/txn"
)

// FuzzConfig checks that each accepted configuration has a valid prefix and at least one member,
// that all members use TLS or none does, and that no address has a login.
func FuzzConfig(f *testing.F) {
	f.Add("address=http://u:hush-hush@db:2379", "")
	f.Add("address=a:1,https://b:1\ntls_insecure=1\nprefix=\xff", "hush-hush")
	f.Add("address=unix:///s,[::1]:2379\nusername=x\ndial_timeout=-1s", "")
	f.Fuzz(func(t *testing.T, text, password string) {
		cfg := configtest.Read(text)
		cfg["password"] = password
		o, err := configured(cfg)
		if err != nil {
			return
		}
		if len(o.Address) == 0 || !utf8.ValidString(o.Prefix) {
			t.Errorf("%q is read as %+v", text, o)
		}
		for _, e := range o.Address {
			scheme, rest, _ := strings.Cut(e, "://")
			if rest == "" || scheme != "unix" && (scheme == "https") != strings.HasPrefix(o.Address[0], "https") || strings.Contains(e, "@") && scheme != "unix" {
				t.Errorf("%q is read as %q", text, o.Address)
			}
		}
	})
}

// FuzzNeedle checks that no error about a configuration shows a
// password, even if the password is where it does not belong.
func FuzzNeedle(f *testing.F) {
	configtest.FuzzNeedle(f, Spec, func(cfg driver.Config) error {
		_, err := configured(cfg)
		return err
	})
}

// configured checks a configuration as Open does before making a client.
func configured(cfg driver.Config) (Options, error) {
	cfg, err := Spec.CheckConfig(cfg)
	if err != nil {
		return Options{}, err
	}
	var o Options
	config.Decode(cfg, &o)
	o, _, err = o.complete()
	return o, err
}

// FuzzRecord checks that records, which are the values of entries, are read as they were written.
// Any other value must be read as the zero record, or as a record of at most the value's length.
func FuzzRecord(f *testing.F) {
	f.Add("o-2", "label", []byte("value"), []byte{recordVersion, 0, 1, 'l', 0xff})
	f.Add("", "", []byte{}, []byte{})
	f.Add("o", "l\x00", []byte{0}, []byte{recordVersion, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, owner, label string, value, stored []byte) {
		want := record{owner: owner, label: label}
		if len(value) > 0 {
			want.value = value
		}
		if got := decodeRecord(want.encode()); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v is read as %+v", want, got)
		}
		got := decodeRecord(stored)
		known := len(stored) > 0 && stored[0] == recordVersion
		if !known && !reflect.DeepEqual(got, record{}) || len(got.owner)+len(got.label)+len(got.value) > len(stored) {
			t.Errorf("%x is read as %+v", stored, got)
		}
	})
}

// FuzzHolder reads the holder from an entry with a random value and a random key of a lock. It
// checks that the lock counts as held and has the right name.
func FuzzHolder(f *testing.F) {
	f.Add("jobs", "ha", []byte{recordVersion, 1, 'o', 1, 'l', 0}, int64(7), uint64(1_700_000_000_000_000), 2)
	f.Add("", "", []byte("foreign"), int64(-1), uint64(1)<<62, 0)
	f.Fuzz(func(t *testing.T, name, rest string, value []byte, rev int64, base uint64, queued int) {
		b, g := &Backend{table: &table{space: newSpace("p/"), leases: &leases{}}}, &txn.Generation{Base: base % (1 << 62)}
		kv := &mvccpb.KeyValue{Key: []byte(b.space.names + name + separator + rest), Value: value, CreateRevision: max(1, rev)}
		h := b.holder(context.Background(), lockState{Found: txn.Found{Generation: g}, first: kv, entries: max(0, queued)})
		if utf8.ValidString(name) && h.Name != name || !h.Held() || h.Waiters < 0 {
			t.Errorf("%q is held by %+v", kv.Key, h)
		}
		if kv.CreateRevision < 1<<61 && h.Token-g.Base != uint64(kv.CreateRevision) {
			t.Errorf("revision %d is token %d above %d", kv.CreateRevision, h.Token, g.Base)
		}
	})
}
