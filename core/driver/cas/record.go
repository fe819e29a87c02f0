package cas

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// tombstoneFor is the time for which a withdrawn owner is refused. The contract requires one
// minute. The other 30 s are for a Put that is sent before the withdrawal and arrives after it.
const tombstoneFor = 90 * time.Second

// record is the JSON for one lock. Times are in nanoseconds since 1970, by the store's clock.
type record struct {
	Name      string           `json:"name"`
	Holder    *holder          `json:"holder,omitempty"`
	Withdrawn map[string]int64 `json:"withdrawn,omitempty"` // maps an owner to the instant until which it is refused
	step      time.Duration    // the step of the backend
}

type holder struct {
	Owner string `json:"owner"`
	Label string `json:"label,omitempty"`
	Value []byte `json:"value,omitempty"`
	// Token is 0 in the first record of a grant, because that record's revision is the token.
	Token uint64 `json:"token,omitempty"`
	End   int64  `json:"end_ns"`
	// By is the time at which the lease would have ended without the renewal that wrote this record.
	// If the store wrote the record at or after By, the renewal is void.
	By int64 `json:"by_ns,omitempty"`
}

var lowercase = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// The store's key for a lock is a hash of the name, because few stores allow keys of 512 arbitrary
// bytes.
func keyOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return lowercase.EncodeToString(sum[:])
}

// decode returns an empty record if the key does not exist.
func (b *backend) decode(e Entry, name string) (record, error) {
	r := record{Name: name, step: b.step}
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

func (r *record) tidy(e Entry) {
	if h := r.Holder; h != nil {
		if e.Now.UnixNano() >= h.End || h.void(e) {
			r.Holder = nil
		}
		h.By = 0 // By concerns only the write that made e
	}
	for owner, until := range r.Withdrawn {
		if e.Now.UnixNano() >= until {
			delete(r.Withdrawn, owner)
		}
	}
}

// void reports whether the store wrote e so late that the renewal in e does not count.
func (h *holder) void(e Entry) bool {
	return h.By != 0 && !e.Written.IsZero() && e.Written.UnixNano() >= h.By
}

// needed returns the time for which the store must keep r, counted from now.
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

// shown returns the zero Holder if the record has no holder.
func (r *record) shown(now time.Time) driver.Holder {
	h := r.Holder
	if h == nil {
		return driver.Holder{}
	}
	left := time.Duration(h.End - now.UnixNano())
	if left > r.step {
		left -= r.step
	}
	left = (left + time.Millisecond - 1).Truncate(time.Millisecond)
	return driver.Holder{Name: r.Name, Owner: h.Owner, Label: h.Label, Value: h.Value, Token: h.Token, TTL: left, Waiters: -1}
}
