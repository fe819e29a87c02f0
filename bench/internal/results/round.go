package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockbench/lockbench/internal/claim"
)

// RoundsFile has the histories of the safety scenario: one JSON object for
// each round in each line, to be read by people too.
const RoundsFile = "rounds.jsonl"

// Round is the record of one fault on one backend, played once. Times are nanoseconds
// since the run began, on the machine's monotonic clock, which all its processes
// share; 0 means that it did not happen.
type Round struct {
	Backend string `json:"backend"`
	Kind    Kind   `json:"kind"`
	Fencing string `json:"fencing,omitempty"`
	Fault   string `json:"fault"`
	// Claims are the backend's terms, if package claim does not know the backend.
	Claims *claim.Terms `json:"claims,omitempty"`
	// Conditions are the conditions that the fault makes, by the names of package claim.
	Conditions []claim.Condition `json:"conditions,omitempty"`
	// Control reports whether a safeguard was off on purpose. The result is then
	// shown, but counts against no backend.
	Control bool  `json:"control,omitempty"`
	Round   int   `json:"round,omitempty"` // from 1
	TTLms   int64 `json:"ttl_ms,omitempty"`
	// FirstSpanNs is the FirstSpan of the plugin's Properties.
	FirstSpanNs int64 `json:"first_span_ns,omitempty"`
	// Missing says why the fault was not run here; nothing else is known then.
	Missing string `json:"missing,omitempty"`
	// Failure says why the round was broken off. The record until then is judged
	// nevertheless.
	Failure string `json:"failure,omitempty"`
	// Keeps reports whether no lease should be lost to this fault.
	Keeps bool `json:"keeps,omitempty"`
	// InjectedNs is just before the fault was injected, HealedNs just after its end.
	InjectedNs int64 `json:"struck_ns,omitempty"`
	HealedNs   int64 `json:"healed_ns,omitempty"`
	// BackNs is when the store could serve again, for a fault after which it must
	// grant promptly.
	BackNs int64 `json:"back_ns,omitempty"`
	Hits   int   `json:"hits"` // locks that the holder held at the injection
	Names  int   `json:"names,omitempty"`
	Seen
}

// Seen has the reports of hosts.
type Seen struct {
	Halts  []Halt  `json:"halts,omitempty"`
	Holds  []Hold  `json:"leases,omitempty"`
	Writes []Write `json:"writes,omitempty"`
	Calls  []Call  `json:"calls,omitempty"`
}

// Failed are the errors of acquires.
func (s Seen) Failed() []string {
	var failed []string
	for _, c := range s.Calls {
		if c.Failed() {
			failed = append(failed, c.Error)
		}
	}
	return failed
}

// Held counts the holds without an end.
func (s Seen) Held() int {
	n := 0
	for _, h := range s.Holds {
		if h.Held() {
			n++
		}
	}
	return n
}

// Halt is a period in which a host could not run.
type Halt struct {
	Host int    `json:"host"`
	Why  string `json:"why"` // one of the Halt constants
	From int64  `json:"from_ns"`
	To   int64  `json:"to_ns,omitempty"` // 0: it never ran again
}

// Why a host could not run.
const (
	HaltFrozen  = "frozen"
	HaltKilled  = "killed"
	HaltStarved = "starved" // the machine gave it no time
)

// Hold is one grant as its holder saw it: which host had which name under which
// token, from when to when.
type Hold struct {
	Host  int    `json:"host"`
	Name  int    `json:"name"` // from 0 within the round
	Token uint64 `json:"token"`
	// AskedNs is just before the acquire was called, GrantedNs just after it came back.
	AskedNs   int64 `json:"asked_ns"`
	GrantedNs int64 `json:"granted_ns"`
	// SentNs is when the request was sent from which the grant counts its time, where
	// that matters and is known. A waiter may ask several times.
	SentNs int64 `json:"sent_ns,omitempty"`
	// ValidNs is the last time just before the holder asked whether the lease
	// is valid, and was told so.
	ValidNs int64 `json:"valid_ns"`
	// DoneNs is when the holder learned that the lease was lost; 0 when it did not.
	DoneNs int64  `json:"done_ns,omitempty"`
	Cause  string `json:"cause,omitempty"` // of the loss
	// ReleaseNs is before the release was called and ReleasedNs after it came
	// back without an error; 0 when that did not happen.
	ReleaseNs  int64 `json:"release_ns,omitempty"`
	ReleasedNs int64 `json:"released_ns,omitempty"`
	// Renewals are the confirmed renewals, each as the times of sending and reply.
	Renewals [][2]int64 `json:"renewals_ns,omitempty"`
}

// Held reports whether a hold has no end.
func (h *Hold) Held() bool { return h.DoneNs == 0 && h.ReleaseNs == 0 }

// Until is when the holder ceased to act as one. It then began to release, or last
// found the lease valid.
func (h *Hold) Until() int64 {
	if h.ReleaseNs > 0 {
		return h.ReleaseNs
	}
	return h.ValidNs
}

// Attempt is the hold in the form that scenarios with figures use.
func (h *Hold) Attempt() Attempt {
	a := Attempt{
		Client: int32(h.Host), Name: int32(h.Name), Asked: h.AskedNs, Answered: h.GrantedNs,
		Ended: h.Until(), Done: max(h.ValidNs, h.DoneNs), Token: h.Token, Outcome: Granted, End: EndLost,
	}
	switch {
	case h.ReleasedNs > 0:
		a.Done, a.End = h.ReleasedNs, EndReleased
	case h.ReleaseNs > 0:
		a.Done, a.End = h.ReleaseNs, EndReleaseFailed
	case h.Cause == HaltKilled:
		a.End = EndKilled
	}
	return a
}

// Write is one write to a guarded resource, or to its twin without a guard, by
// a holder that believed to hold the lock when it began to prepare it.
type Write struct {
	Host    int    `json:"host"`
	Name    int    `json:"name"`
	Token   uint64 `json:"token"`
	Guarded bool   `json:"guarded,omitempty"`
	SentNs  int64  `json:"sent_ns"`
	DoneNs  int64  `json:"done_ns"`
	Refused bool   `json:"refused,omitempty"` // as stale
}

// Op is the kind of a call: a way to hold a lock, or an end.
type Op string

// The ops.
const (
	OpLock Op = "lock" // Acquire, Release
	OpTry  Op = "try"  // TryAcquire, Release
	OpDo   Op = "do"   // Do
	OpLead Op = "lead" // Run of an elector

	OpRelease Op = "release"
	OpClose   Op = "close" // of a client
	OpOpen    Op = "open"
)

// Call is a call of a caller that came back.
type Call struct {
	Op     Op    `json:"op"`
	Name   int   `json:"name"`
	SentNs int64 `json:"sent_ns"`
	BackNs int64 `json:"back_ns"`
	// LimitNs is when its context ended, or was to end.
	LimitNs int64 `json:"limit_ns,omitempty"`
	// Outcome is "" for success, else one of the outcomes; Error is the text.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
	// Served reports whether the client had been granted a lock before, and Ran
	// whether the function that was to be run under the lock was.
	Served bool `json:"served,omitempty"`
	Ran    bool `json:"ran,omitempty"`
}

// These are the outcomes of a call that came back with an error. CallOver means that
// its context has ended, or that its lock is held or was lost meanwhile.
const (
	CallClosed = "closed" // the client was closed
	CallOver   = "over"
	CallFailed = "failed"
)

// Failed reports whether the call is an acquire that has failed.
func (c Call) Failed() bool { return c.Outcome != "" && c.Op == OpLock }

// GaveUp reports whether the call failed by itself before its function ran.
func (c Call) GaveUp() bool { return c.Outcome == CallFailed && !c.Ran }

// Waits reports whether the call waits for a lock.
func (c Call) Waits() bool { return c.Op == OpLock || c.Op == OpDo || c.Op == OpLead }

// Shift moves all times by ns.
func (r *Round) Shift(ns int64) {
	r.times(func(t *int64) {
		if *t != 0 {
			*t += ns
		}
	})
}

// times calls f with every time in r.
func (r *Round) times(f func(*int64)) {
	all := func(times ...*int64) {
		for _, t := range times {
			f(t)
		}
	}
	all(&r.InjectedNs, &r.HealedNs, &r.BackNs)
	for i := range r.Halts {
		all(&r.Halts[i].From, &r.Halts[i].To)
	}
	for i := range r.Holds {
		l := &r.Holds[i]
		all(&l.AskedNs, &l.GrantedNs, &l.SentNs, &l.ValidNs, &l.DoneNs, &l.ReleaseNs, &l.ReleasedNs)
		for j := range l.Renewals {
			all(&l.Renewals[j][0], &l.Renewals[j][1])
		}
	}
	for i := range r.Writes {
		all(&r.Writes[i].SentNs, &r.Writes[i].DoneNs)
	}
}

// AddRound appends a round to the folder.
func (f *Folder) AddRound(r Round) (err error) {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("results: %s: %w", RoundsFile, err)
	}
	file, err := os.OpenFile(filepath.Join(f.Dir, RoundsFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(append(b, '\n'))
	return errors.Join(err, file.Close())
}

// maxRound bounds one line of the rounds.
const maxRound = 64 << 20

// ReadRounds reads the rounds of a folder, in the order in which they were run. It
// returns none when the scenario was not run. A last line that was cut is an error
// wrapping [ErrTruncated], beside the rounds before it.
func ReadRounds(dir string) ([]Round, error) {
	f, err := os.Open(filepath.Join(dir, RoundsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseRounds(f)
}

// ParseRounds reads the text of a rounds file, as [ReadRounds] does.
func ParseRounds(r io.Reader) ([]Round, error) {
	var out []Round
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRound)
	for n := 1; lines.Scan(); n++ {
		var round Round
		err := json.Unmarshal(lines.Bytes(), &round)
		if err == nil {
			err = round.check()
		}
		if err != nil {
			return out, fmt.Errorf("%w: line %d of %s: %w", ErrTruncated, n, RoundsFile, err)
		}
		out = append(out, round)
	}
	return out, lines.Err()
}

// These bound the values of a round, because a file may be damaged, or written by hand.
const (
	maxNames = 10_000
	maxTTLms = 24 * 60 * 60 * 1000
	maxTime  = int64(1) << 60 // nanoseconds: 36 years
)

// check finds numbers that are unfit for computing.
func (r *Round) check() error {
	if r.Names < 0 || r.Names > maxNames || r.TTLms < 0 || r.TTLms > maxTTLms {
		return fmt.Errorf("%d names and a TTL of %d ms are not those of a round", r.Names, r.TTLms)
	}
	for _, l := range r.Holds {
		if l.Name < 0 || l.Name >= r.Names {
			return fmt.Errorf("a lease of lock %d of %d", l.Name, r.Names)
		}
	}
	bad := false
	r.times(func(t *int64) { bad = bad || *t < 0 || *t > maxTime })
	if bad {
		return errors.New("a time before the run, or years after it")
	}
	return nil
}
