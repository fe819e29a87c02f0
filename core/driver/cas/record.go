package cas

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// tombstoneFor is how long a withdrawn owner is refused: the one minute that the
// contract requires, plus the time that a Put that was sent before may take.
const tombstoneFor = 90 * time.Second

// record is everything that the store keeps about one lock, as JSON. Instants are
// nanoseconds since 1970 by the store's clock.
type record struct {
	Name      string           `json:"name"`
	Holder    *holder          `json:"holder,omitempty"`
	Withdrawn map[string]int64 `json:"withdrawn,omitempty"` // by owner, the instant until which that owner is refused
}

type holder struct {
	Owner string `json:"owner"`
	Label string `json:"label,omitempty"`
	Value []byte `json:"value,omitempty"`
	// Token is 0 in the record that makes the grant, whose revision is the token.
	Token uint64 `json:"token,omitempty"`
	End   int64  `json:"end_ns"`
	// By is the end that the lease had before the renewal that wrote this
	// record. The renewal is void if the store wrote the record after By.
	By int64 `json:"by_ns,omitempty"`
}

var lowercase = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// keyOf returns the key of a lock. The key is a hash of the name, because few
// stores accept 512 arbitrary bytes as a key. The record contains the name itself.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return lowercase.EncodeToString(sum[:])
}

// decode returns the record of e, or an empty record if the key does not exist.
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

// tidy removes from r, the record of e, everything that has expired.
func (r *record) tidy(e Entry) {
	if h := r.Holder; h != nil {
		if e.Now.UnixNano() >= h.End || h.void(e) {
			r.Holder = nil
		}
		h.By = 0 // By concerned only the write of e
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

// needed returns how long after now the store must keep r.
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

// shown returns the holder as the driver describes it, or the zero Holder if there is none.
func (r *record) shown(now time.Time) driver.Holder {
	h := r.Holder
	if h == nil {
		return driver.Holder{}
	}
	left := time.Duration(h.End - now.UnixNano())
	left = (left + time.Millisecond - 1).Truncate(time.Millisecond)
	return driver.Holder{Name: r.Name, Owner: h.Owner, Label: h.Label, Value: h.Value, Token: h.Token, TTL: left, Waiters: -1}
}
