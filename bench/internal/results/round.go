package results

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockbench/lockbench/internal/claim"
)

// RoundsFile is the file of the safety scenario. It has one line of JSON for each round. A round
// plays one fault on one backend once.
const RoundsFile = "rounds.jsonl"

// Round is the record of one fault that was played once on one backend. Times are in nanoseconds
// since the run began, by the monotonic clock of the machine, which all processes read. A time is 0
// if its event did not happen.
type Round struct {
	Backend string `json:"backend"`
	Kind    Kind   `json:"kind"`
	Fencing string `json:"fencing,omitempty"`
	Fault   string `json:"fault"`
	// Claims has the promises of the backend, if lockbench does not know the backend.
	Claims *claim.Terms `json:"claims,omitempty"`
	// Conditions are the conditions that the fault creates, by their names in package claim.
	Conditions []claim.Condition `json:"conditions,omitempty"`
	// Control reports whether the round turned off a safeguard on purpose. The report shows which
	// rules a control round broke, but does not count them as violations.
	Control bool  `json:"control,omitempty"`
	Round   int   `json:"round,omitempty"` // from 1
	TTLms   int64 `json:"ttl_ms,omitempty"`
	// FirstSpanNs is FirstSpan in [driver.Properties]: the longest first grant to a queued waiter.
	FirstSpanNs int64 `json:"first_span_ns,omitempty"`
	// Missing says why the fault was not played. If it is set, the round has no other results.
	Missing string `json:"missing,omitempty"`
	// Failure says why the round ended early. The checks use all records up to that moment.
	Failure string `json:"failure,omitempty"`
	// Keeps reports whether all leases must survive the fault.
	Keeps bool `json:"keeps,omitempty"`
	// InjectedNs is the time just before the fault, and HealedNs is the time just after it ended.
	InjectedNs int64 `json:"struck_ns,omitempty"`
	HealedNs   int64 `json:"healed_ns,omitempty"`
	// BackNs is when the store could serve again. It is set only for a fault after which the store
	// must soon grant locks again.
	BackNs int64 `json:"back_ns,omitempty"`
	Hits   int   `json:"hits"` // number of locks that the holder held when the fault was injected
	Names  int   `json:"names,omitempty"`
	Seen
}

// Seen has all that the hosts (application processes) reported.
type Seen struct {
	Halts  []Halt  `json:"halts,omitempty"`
	Holds  []Hold  `json:"leases,omitempty"`
	Writes []Write `json:"writes,omitempty"`
	Calls  []Call  `json:"calls,omitempty"`
}

func (s Seen) Failed() []string {
	var failed []string
	for _, c := range s.Calls {
		if c.Failed() {
			failed = append(failed, c.Error)
		}
	}
	return failed
}

func (s Seen) Held() int {
	n := 0
	for _, h := range s.Holds {
		if h.Held() {
			n++
		}
	}
	return n
}

// Halt is a time during which a host process could not run.
type Halt struct {
	Host int    `json:"host"`
	Why  string `json:"why"` // one of the Halt constants
	From int64  `json:"from_ns"`
	To   int64  `json:"to_ns,omitempty"` // 0: the host never ran again
}

const (
	HaltFrozen  = "frozen"
	HaltKilled  = "killed"
	HaltStarved = "starved" // the machine gave the host no processor time
)

// Hold is one grant as its holder saw it: which host held which lock, with which token, and when.
type Hold struct {
	Host  int    `json:"host"`
	Name  int    `json:"name"` // number of the name, from 0 within the round
	Token uint64 `json:"token"`
	// AskedNs is the time just before the call to acquire. GrantedNs is the time just after this call.
	AskedNs   int64 `json:"asked_ns"`
	GrantedNs int64 `json:"granted_ns"`
	// SentNs is the time of the request from which the TTL counts, or 0 if unknown. It may be later
	// than AskedNs, because a host that waits may send several requests.
	SentNs int64 `json:"sent_ns,omitempty"`
	// UntilNs is the deadline of the lease at GrantedNs, or 0 if unknown. A waiter in the store's
	// queue may get less than a whole TTL at first, see [driver.Properties].FirstSpan.
	UntilNs int64 `json:"until_ns,omitempty"`
	// ValidNs is the time just before the last check that found the lease valid.
	ValidNs int64 `json:"valid_ns"`
	// DoneNs is when the holder learned that the lease was lost, or 0 if it did not.
	DoneNs int64  `json:"done_ns,omitempty"`
	Cause  string `json:"cause,omitempty"` // the cause of the loss
	// ReleaseNs is the time just before the call to release. ReleasedNs is the time just after release
	// returned without an error. Each is 0 if this did not happen.
	ReleaseNs  int64 `json:"release_ns,omitempty"`
	ReleasedNs int64 `json:"released_ns,omitempty"`
	// Renewals has, for each confirmed renewal, when its request was sent and when its reply came.
	Renewals [][2]int64 `json:"renewals_ns,omitempty"`
}

// Held reports whether the lease is neither lost nor released.
func (h *Hold) Held() bool { return h.DoneNs == 0 && h.ReleaseNs == 0 }

// Until returns when the holder stopped acting as the holder. This is just before the call to
// release or, without such a call, when the holder last found the lease valid.
func (h *Hold) Until() int64 {
	if h.ReleaseNs > 0 {
		return h.ReleaseNs
	}
	return h.ValidNs
}

// Attempt converts the hold to an Attempt, which is what all scenarios except safety record.
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

// Write is one write to a resource by the holder of a lock. If Guarded is set, the resource refuses
// stale tokens. When the holder began to prepare the write, it believed that it held the lock.
type Write struct {
	Host    int    `json:"host"`
	Name    int    `json:"name"`
	Token   uint64 `json:"token"`
	Guarded bool   `json:"guarded,omitempty"`
	SentNs  int64  `json:"sent_ns"`
	DoneNs  int64  `json:"done_ns"`
	Refused bool   `json:"refused,omitempty"` // refused because the token was stale
}

// Op is the method that a caller called.
type Op string

const (
	OpLock Op = "lock" // Acquire, Release
	OpTry  Op = "try"  // TryAcquire, Release
	OpDo   Op = "do"   // Do
	OpLead Op = "lead" // Run of an Elector

	OpRelease Op = "release"
	OpClose   Op = "close" // Close of a client
	OpOpen    Op = "open"
)

// Call is a call by an application, recorded after the call returned.
type Call struct {
	Op     Op    `json:"op"`
	Name   int   `json:"name"`
	SentNs int64 `json:"sent_ns"`
	BackNs int64 `json:"back_ns"`
	// LimitNs is the deadline of the call's context. It is 0 if the call was interrupted earlier.
	LimitNs int64 `json:"limit_ns,omitempty"`
	// Outcome is one of the constants below, or "" for success. Error is the text of the error.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"`
	// Served reports whether the client had got any lock before this call. Ran reports whether the
	// call ran its function under the lock.
	Served bool `json:"served,omitempty"`
	Ran    bool `json:"ran,omitempty"`
}

// CallOver means that the context ended, that another holder has the lock, or that the lock was
// lost during the call.
const (
	CallClosed = "closed" // the client was closed
	CallOver   = "over"
	CallFailed = "failed"
)

// Failed reports whether the call was an acquire that returned an error.
func (c Call) Failed() bool { return c.Outcome != "" && c.Op == OpLock }

func (c Call) GaveUp() bool { return c.Outcome == CallFailed && !c.Ran }

func (c Call) Waits() bool { return c.Op == OpLock || c.Op == OpDo || c.Op == OpLead }

// Shift adds ns to each time, except to a time of 0, which means that the event did not happen.
func (r *Round) Shift(ns int64) {
	r.times(func(t *int64) {
		if *t != 0 {
			*t += ns
		}
	})
}

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
		all(&l.AskedNs, &l.GrantedNs, &l.SentNs, &l.UntilNs, &l.ValidNs, &l.DoneNs, &l.ReleaseNs, &l.ReleasedNs)
		for j := range l.Renewals {
			all(&l.Renewals[j][0], &l.Renewals[j][1])
		}
	}
	for i := range r.Writes {
		all(&r.Writes[i].SentNs, &r.Writes[i].DoneNs)
	}
}

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

// maxRound is the largest size of one line of the rounds file, in bytes.
const maxRound = 64 << 20

// ReadRounds reads the rounds of a folder in the order in which they were played. It returns nil if
// the folder has no rounds. If a line is damaged or cut off, it returns the rounds before that
// line, and an error wrapping [ErrTruncated].
func ReadRounds(dir string) ([]Round, error) {
	f, err := os.Open(filepath.Join(dir, RoundsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []Round
	lines := bufio.NewScanner(f)
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

// These are the largest values in a valid round. A file with larger values was damaged or edited.
const (
	maxNames = 10_000
	maxTTLms = 24 * 60 * 60 * 1000
	maxTime  = int64(1) << 60 // nanoseconds: 36 years
)

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
