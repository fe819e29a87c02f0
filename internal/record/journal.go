package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// JournalFile says how far a run came, so that another process can go on with
// it: a line for what was asked, and one for each cell and run, written after
// all that the other files have of it. Who measures into a folder has it locked.
const JournalFile = "journal.jsonl"

// ErrNotResumable: nobody can go on with the run of a folder.
var ErrNotResumable = errors.New("cannot be resumed")

// Asked is what a run has to do. It has no addresses and no passwords.
type Asked struct {
	Plan Plan `json:"plan"`
	// The plan's times to the nanosecond.
	TTL     time.Duration `json:"ttl_ns"`
	WarmUp  time.Duration `json:"warm_up_ns"`
	Measure time.Duration `json:"measure_ns"`
	Tick    time.Duration `json:"tick_ns,omitempty"`
	// Config names the keys that were configured, as "BACKEND.KEY".
	Config []string `json:"config,omitempty"`
	// VS reports whether another build was measured beside this one.
	VS bool `json:"vs,omitempty"`
}

// Unit is one cell in one run that has ended.
type Unit struct {
	Cell string `json:"cell"` // see [Section.Name]
	Run  int    `json:"run"`  // from 1
	// Done reports whether it has figures, and Failed says why not, unless it was
	// interrupted.
	Done     bool        `json:"done"`
	Failed   *FailedCell `json:"failed,omitempty"`
	Findings []string    `json:"findings,omitempty"`
	// At is when it ended, and Elapsed for how long the run was at work until then,
	// in seconds.
	At      time.Time `json:"at"`
	Elapsed float64   `json:"elapsed_s"`
	// Sizes are those of results, events and histograms, in bytes.
	Sizes [3]int64 `json:"sizes"`
}

// Resumption is one time that a process went on with the run of another.
type Resumption struct {
	At    time.Time `json:"at"`
	Units int       `json:"cells"` // that were measured before, over all runs
	// Away is the time since the last one of them, in seconds.
	Away float64 `json:"away_s"`
}

// KeepJournal begins the journal of a folder that was just created.
func (f *Folder) KeepJournal(a Asked) (err error) {
	if err = f.open(newFile, JournalFile); err != nil {
		return err
	}
	if err = lock(f.journal); err != nil {
		return err
	}
	return f.note(a)
}

// Enter writes that a unit has ended whose cell was added; At and Sizes are filled
// in. Without a journal it does nothing.
func (f *Folder) Enter(u Unit) (err error) {
	if f.journal == nil {
		return nil
	}
	for i, file := range f.data() {
		if u.Sizes[i], err = file.Seek(0, io.SeekCurrent); err != nil {
			return err
		}
	}
	u.At = time.Now().UTC()
	return f.note(u)
}

func (f *Folder) note(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = f.journal.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record: %s: %w", JournalFile, err)
	}
	return nil
}

// data are the files that only grow.
func (f *Folder) data() [3]*os.File { return [3]*os.File{f.results, f.events, f.histograms} }

// lock refuses a journal that another process has.
func lock(f *os.File) error {
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return fmt.Errorf("%w now: another lockbench measures into it", ErrNotResumable)
	}
	return nil
}

// ReadAsked returns what the run of a folder has to do. The error wraps
// [ErrNotResumable] when nobody can go on with it, and else is that of
// [ReadManifest].
func ReadAsked(dir string) (Asked, error) {
	if _, err := resumable(dir); err != nil {
		return Asked{}, named(dir, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, JournalFile))
	if err != nil {
		return Asked{}, err
	}
	a, _, _, err := parseJournal(b)
	return a, named(dir, err)
}

// named says of which folder err is.
func named(dir string, err error) error {
	if errors.Is(err, ErrNotResumable) {
		return fmt.Errorf("%s %w", dir, err)
	}
	return err
}

var errNothing = fmt.Errorf("%w: it ended before anything was measured; run it again, into another folder", ErrNotResumable)

// resumable reads run.json of a folder whose run has not come to its end.
func resumable(dir string) (Manifest, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return m, err
	}
	_, err = os.Stat(filepath.Join(dir, JournalFile))
	switch {
	case m.State == StateDone:
		return m, fmt.Errorf("%w: its run is done", ErrNotResumable)
	case errors.Is(err, fs.ErrNotExist):
		return m, fmt.Errorf("%w: it has no %s, which only runs have that measure alone, of this lockbench or a later one", ErrNotResumable, JournalFile)
	}
	return m, err
}

// parseJournal reads the text of a journal, and returns the size of what is whole.
func parseJournal(b []byte) (a Asked, units []Unit, size int64, err error) {
	for line := range bytes.Lines(b) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it was being written
		}
		if size == 0 {
			err = json.Unmarshal(line, &a)
		} else {
			var u Unit
			err = json.Unmarshal(line, &u)
			units = append(units, u)
		}
		if err != nil {
			return a, nil, 0, fmt.Errorf("%w: %s: %w", ErrNotResumable, JournalFile, err)
		}
		size += int64(len(line))
	}
	if len(units) == 0 {
		return a, nil, 0, errNothing
	}
	return a, units, size, nil
}

// Reopen locks a folder whose run was interrupted, or failed, and returns it with
// the units that it has. It is not changed before [Folder.Resume]. Its errors are
// those of [ReadAsked].
func Reopen(dir string) (*Folder, []Unit, error) {
	f, units, err := reopen(dir)
	if err != nil && f != nil {
		err = errors.Join(err, f.closeFiles())
	}
	return f, units, named(dir, err)
}

func reopen(dir string) (f *Folder, units []Unit, err error) {
	if _, err := resumable(dir); err != nil {
		return nil, nil, err
	}
	f = &Folder{Dir: dir}
	if err := f.open(os.O_RDWR, JournalFile, ResultsFile, EventsFile, HistogramsFile); err != nil {
		return f, nil, err
	}
	if err := lock(f.journal); err != nil {
		return f, nil, err
	}
	if f.manifest, err = resumable(dir); err != nil { // it may just have come to its end
		return f, nil, err
	}
	b, err := io.ReadAll(f.journal)
	if err != nil {
		return f, nil, err
	}
	_, units, f.whole, err = parseJournal(b)
	return f, units, err
}

// Leave closes a reopened folder as it was.
func (f *Folder) Leave() error { return f.closeFiles() }

// Resume goes on with a reopened folder, described anew by m, after the last of
// its units. What was written after that is cut off.
func (f *Folder) Resume(m Manifest, last Unit) (err error) {
	err = truncate(f.journal, f.whole)
	for i, file := range f.data() {
		err = errors.Join(err, truncate(file, last.Sizes[i]))
	}
	if err != nil {
		return named(f.Dir, err)
	}
	m.Format, m.State = Format, StateRunning
	f.histogramLog = continueHistograms(f.histograms, m.Started)
	if f.eventLog, err = newEventWriter(f.events); err != nil {
		return err
	}
	return f.SetManifest(m)
}

// truncate cuts file to size and goes to its end. A file that is shorter has lost
// what its journal knows.
func truncate(file *os.File, size int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < size {
		return fmt.Errorf("%w: %s has %d bytes, and had %d", ErrNotResumable, file.Name(), info.Size(), size)
	}
	_, seekErr := file.Seek(size, io.SeekStart)
	return errors.Join(file.Truncate(size), seekErr)
}

// Replay calls emit for each section that a resumed folder keeps, as [ReadEvents]
// does.
func (f *Folder) Replay(emit func(Section, []Attempt) error) error {
	if err := ScanEvents(f.Dir, emit); !errors.Is(err, ErrTruncated) { // the end is still to come
		return err
	}
	return nil
}

// Words say for people when and after what a run was resumed.
func (r Resumption) Words() string {
	away := time.Duration(r.Away * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf("the run was interrupted after %d cells, and resumed %v later", r.Units, away)
}

// SameSetup says why figures that are measured now are no part of this run:
// another build, machine or server, or a subject that is gone. "" when they are.
func (m Manifest) SameSetup(now Manifest) string {
	for _, s := range m.Subjects {
		// The figures of one that is missing would be shown nowhere, and the run
		// would be done without the rest of them.
		if now.Subject(s.Name).Name == "" {
			return s.Name + " cannot be measured now"
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Binaries)) {
		was := m.Binaries[name]
		is, ok := now.Binaries[name]
		switch {
		case ok && is != was:
			return name + " is another build now"
		case !ok && !slices.Contains(slices.Collect(maps.Values(now.Binaries)), was):
			return name + " is missing now, or has another name and is another build"
		}
	}
	if m.Machine != now.Machine {
		return fmt.Sprintf("it was measured on another machine, or on this one with another kernel: %v, now %v", m.Machine, now.Machine)
	}
	for _, s := range m.Subjects {
		if is := now.Subject(s.Name).Server; is != s.Server {
			return fmt.Sprintf("the server of %s was %s, and is %s", s.Name, s.Server, is)
		}
	}
	return ""
}
