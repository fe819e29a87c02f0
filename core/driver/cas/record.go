package cas

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// tombstoneFor is how long a withdrawn owner is refused: the minute of the
// contract, and the time that a Put decided earlier may take.
const tombstoneFor = 90 * time.Second

// record is all that the store keeps of a lock, as JSON. Instants are nanoseconds
// since 1970 by the store's clock.
type record struct {
	Name      string           `json:"name"`
	Holder    *holder          `json:"holder,omitempty"`
	Withdrawn map[string]int64 `json:"withdrawn,omitempty"` // by owner, the instant until which it is refused
}

type holder struct {
	Owner string `json:"owner"`
	Label string `json:"label,omitempty"`
	Value []byte `json:"value,omitempty"`
	// Token is 0 in the record that grants: the record's revision is the token.
	Token uint64 `json:"token,omitempty"`
	End   int64  `json:"end_ns"`
	// By is the end that the lease had before the renewal that wrote this
	// record. The renewal is void if the store handled it later.
	By int64 `json:"by_ns,omitempty"`
}

var lowercase = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// keyOf returns the key of a lock. Names are hashed, because few stores take 512
// bytes of any kind; the record has the name itself.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return lowercase.EncodeToString(sum[:])
}

// decode returns the record of e, with an empty one for a key that is not there.
func decode(e Entry, name string) (record, error) {
	r := record{Name: name}
	if len(e.Value) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return r, fmt.Errorf("%w: %w: the value of a key is no record of a lock: %w", driver.ErrUnavailable, driver.ErrNotSent, err)
	}
	if r.Holder != nil && r.Holder.Token == 0 {
		r.Holder.Token = e.Revision
	}
	return r, nil
}

func (r *record) encode() ([]byte, error) { return json.Marshal(r) }

// tidy removes from r, the record of e, everything whose time is over.
func (r *record) tidy(e Entry) {
	if h := r.Holder; h != nil {
		if e.Now.UnixNano() >= h.End || h.void(e) {
			r.Holder = nil
		}
		h.By = 0 // By was about the write of e
	}
	for owner, until := range r.Withdrawn {
		if e.Now.UnixNano() >= until {
			delete(r.Withdrawn, owner)
		}
	}
}

// void reports whether e was written too late to renew the lease.
func (h *holder) void(e Entry) bool {
	return h.By != 0 && !e.Written.IsZero() && e.Written.UnixNano() >= h.By
}

// needed is how long from now on the store must keep r.
func (r *record) needed(now time.Time) time.Duration {
	var last int64
	if r.Holder != nil {
		last = r.Holder.End
	}
	for _, until := range r.Withdrawn {
		last = max(last, until)
	}
	return time.Duration(last - now.UnixNano())
}

// shown returns the holder for people, the zero Holder for none.
func (r *record) shown(now time.Time) driver.Holder {
	h := r.Holder
	if h == nil {
		return driver.Holder{}
	}
	left := time.Duration(h.End - now.UnixNano())
	left = (left + time.Millisecond - 1).Truncate(time.Millisecond)
	return driver.Holder{Name: r.Name, Owner: h.Owner, Label: h.Label, Value: h.Value, Token: h.Token, TTL: left, Waiters: -1}
}
