package results

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// ErrPlans: folders are of different plans or builds, so that their figures do
// not mean the same.
var ErrPlans = errors.New("different plans")

// ErrIncomplete: a folder lacks runs of its plan.
var ErrIncomplete = errors.New("incomplete run")

// Part is one of the runs that a folder was merged from.
type Part struct {
	Started   time.Time `json:"started"`
	Seed      uint64    `json:"seed"`
	Runs      int       `json:"runs"`
	Lockbench string    `json:"lockbench"`
	Machine   Machine   `json:"machine"`
	// Elapsed is how long it took from Started, in seconds.
	Elapsed float64 `json:"elapsed_s,omitempty"`
	// Rates are its own cycles per second, by cell and run, where the folder's
	// figures are of all parts together.
	Rates map[string][]float64 `json:"cycles_per_s,omitempty"`
	// MachineLoad is that of the run, see [Manifest].
	MachineLoad *MachineLoad `json:"machine_load,omitempty"`
}

// ReadWhole reads run.json of a folder whose run was done. The error wraps
// [ErrIncomplete] for others.
func ReadWhole(dir string) (Manifest, error) {
	m, err := ReadManifest(dir)
	if err == nil && m.State != StateDone {
		err = fmt.Errorf("%w: %s says that its run is %s", ErrIncomplete, dir, m.State)
	}
	return m, err
}

// Merge writes a folder with the runs of several, which are of one plan and one
// build, to out, which must be [Vacant]. Their runs follow each other. Of the
// latencies the histograms are added up; no percentile is computed from others.
func Merge(out string, dirs ...string) error {
	all, err := readMergeable(out, dirs)
	if err != nil {
		return err
	}
	for i, m := range all {
		if m.Rendezvous != nil || m.Together != nil {
			return fmt.Errorf("%w: %s measured together with others, and its runs alone are no measurement", ErrPlans, dirs[i])
		}
	}
	return createWhole(out, merged(all), func(f *Folder) error {
		before := 0
		for i, dir := range dirs {
			if err := errors.Join(f.appendResults(dir), f.appendEvents(dir, before)); err != nil {
				return err
			}
			before += all[i].Plan.Runs
		}
		return f.mergeHistograms(dirs, all)
	})
}

// createWhole makes a folder of a run that is done; nothing is left of it when
// fill fails.
func createWhole(out string, m Manifest, fill func(*Folder) error) error {
	f, err := Create(out, m)
	if err != nil {
		return err
	}
	if err := fill(f); err != nil {
		return errors.Join(err, f.closeFiles(), os.RemoveAll(out))
	}
	return f.Close(StateDone)
}

// readMergeable reads what describes the folders, and says why they cannot be
// merged into out.
func readMergeable(out string, dirs []string) ([]Manifest, error) {
	if err := Vacant(out); err != nil {
		return nil, err
	}
	all := make([]Manifest, len(dirs))
	for i, dir := range dirs {
		var err error
		if all[i], err = ReadWhole(dir); err != nil {
			return nil, err
		}
		for j := range i {
			if err := mergeable(all[j], all[i]); err != nil {
				return nil, fmt.Errorf("%w: %s and %s", err, dirs[j], dir)
			}
		}
	}
	return all, nil
}

// mergeable says why two runs cannot be merged.
func mergeable(a, b Manifest) error {
	if d := append(a.Plan.Differs(b.Plan), a.Plan.Elsewhere(b.Plan)...); len(d) > 0 {
		return fmt.Errorf("%w: %s", ErrPlans, strings.Join(d, "; "))
	}
	if a.Plan.MTLS != b.Plan.MTLS {
		return fmt.Errorf("%w: one with mutual TLS, one without", ErrPlans)
	}
	for name, sum := range a.Binaries {
		if other, ok := b.Binaries[name]; ok && other != sum {
			return fmt.Errorf("%w: they are of different builds of %s", ErrPlans, name)
		}
	}
	if a.Started.Equal(b.Started) {
		return fmt.Errorf("%w: they are the same run", ErrPlans)
	}
	return nil
}

// merged describes the runs together.
func merged(all []Manifest) Manifest {
	m := all[0]
	m.Binaries, m.Subjects = maps.Clone(m.Binaries), slices.Clone(m.Subjects)
	m.Parts, m.Skipped, m.Notes, m.Findings, m.MachineLoad = nil, nil, nil, nil, nil
	m.Elapsed, m.Plan.Runs = 0, 0
	for _, one := range all {
		m.Elapsed += one.Elapsed
		m.Plan.Runs += one.Plan.Runs
		m.Skipped = unite(m.Skipped, one.Skipped)
		m.Notes = unite(m.Notes, notesOf(len(m.Parts)+1, one, all))
		m.Findings = append(m.Findings, one.Findings...)
		m.Plan.Baselines = unite(slices.Clone(m.Plan.Baselines), one.Plan.Baselines)
		maps.Copy(m.Binaries, one.Binaries)
		for _, s := range one.Subjects {
			if !slices.ContainsFunc(m.Subjects, func(t Subject) bool { return t.Name == s.Name }) {
				m.Subjects = append(m.Subjects, s)
			}
		}
		if len(one.Parts) > 0 {
			m.Parts = append(m.Parts, one.Parts...)
			continue
		}
		m.Parts = append(m.Parts, Part{Started: one.Started, Seed: one.Plan.Seed, Runs: one.Plan.Runs, Lockbench: one.Lockbench, Machine: one.Machine, Elapsed: one.Elapsed, MachineLoad: one.MachineLoad})
	}
	return m
}

// notesOf are the notes of one run. Those that the others do not have say of which
// part they are; a run that is merged itself has said so.
func notesOf(number int, one Manifest, all []Manifest) []string {
	notes := slices.Clone(one.Notes)
	for i, note := range notes {
		lacks := func(m Manifest) bool { return !slices.Contains(m.Notes, note) }
		if len(one.Parts) == 0 && slices.ContainsFunc(all, lacks) {
			notes[i] = fmt.Sprintf("part %d: %s", number, note)
		}
	}
	return notes
}

func unite(a, b []string) []string {
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(a, s)
		}
	}
	return a
}

// appendResults copies the lines of another folder as they are.
func (f *Folder) appendResults(dir string) error {
	b, err := os.ReadFile(filepath.Join(dir, ResultsFile))
	if err != nil {
		return err
	}
	for line := range bytes.Lines(b) {
		if !bytes.HasPrefix(line, []byte("Benchmark")) {
			continue // the header is written already
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			return fmt.Errorf("%w: %s: %s ends within a line", ErrIncomplete, dir, ResultsFile)
		}
		if _, err := f.results.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// appendEvents copies the attempts of another folder, whose runs follow as
// many others.
func (f *Folder) appendEvents(dir string, before int) error {
	return scanWhole(dir, func(s Section, attempts []Attempt) error {
		s.Run += before
		return f.eventLog.Write(s, attempts)
	})
}

// mergeHistograms adds up the latencies of all folders.
func (f *Folder) mergeHistograms(dirs []string, all []Manifest) error {
	sum := map[HistogramKey]*hdrhistogram.Histogram{}
	var end time.Time
	for i, dir := range dirs {
		if err := addHistograms(sum, dir); err != nil {
			return err
		}
		if last := all[i].Started.Add(time.Duration(all[i].Elapsed * float64(time.Second))); last.After(end) {
			end = last
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(sum), byTag) {
		if err := writeInterval(f.histogramLog, key, sum[key], f.manifest.Started, end); err != nil {
			return err
		}
	}
	return nil
}
