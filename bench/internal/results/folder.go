package results

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Format is the version of the folder's files. ReadManifest refuses a folder of a later version.
const Format = 1

const (
	ManifestFile   = "run.json"
	ResultsFile    = "results.txt"
	EventsFile     = "events.lbe"
	HistogramsFile = "histograms.hlog"
	ReportFile     = "report.html"
)

var ErrNotEmpty = errors.New("directory is not empty")

var ErrNotAFolder = errors.New("not a result folder")

// ErrLater is the error if a later version of lockbench wrote the folder or one of its files.
var ErrLater = errors.New("written by a later lockbench")

// Folder is a result folder to which a run writes. Only one goroutine may use it.
type Folder struct {
	Dir string

	manifest                    Manifest
	results, events, histograms *os.File
	eventLog                    *EventWriter
	histogramLog                *hdrhistogram.HistogramLogWriter
}

// Vacant returns nil if dir is empty or does not exist, so that a folder can be created there. The
// error wraps [ErrNotEmpty] if dir is not empty, or [ErrNotAFolder] if dir is not a directory.
func Vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNotAFolder, err)
	case len(entries) > 0:
		return fmt.Errorf("%w: %s", ErrNotEmpty, dir)
	}
	return nil
}

// Create creates a result folder in the directory dir, which must be empty or missing (see
// [Vacant]). It creates the files of the folder, and writes the manifest m to run.json.
func Create(dir string, m Manifest) (*Folder, error) {
	if err := Vacant(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	m.Format, m.State = Format, StateRunning
	f := &Folder{Dir: dir, manifest: m}
	if err := f.begin(); err != nil {
		return nil, errors.Join(err, f.closeFiles())
	}
	return f, nil
}

func (f *Folder) begin() (err error) {
	for name, file := range map[string]**os.File{ResultsFile: &f.results, EventsFile: &f.events, HistogramsFile: &f.histograms} {
		if *file, err = os.OpenFile(filepath.Join(f.Dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644); err != nil {
			return err
		}
	}
	if err = errors.Join(writeManifest(f.Dir, f.manifest), writeHeader(f.results, f.manifest)); err != nil {
		return err
	}
	if f.eventLog, err = NewEventWriter(f.events); err != nil {
		return err
	}
	f.histogramLog, err = newHistogramLog(f.histograms, f.manifest.Started)
	return err
}

// Add appends the measurements of one cell in one run. If c.Interrupted is set, Add writes the
// attempts, which the safety checks need, but no figures.
func (f *Folder) Add(c Cell) error {
	if err := f.eventLog.Write(c.Section, c.Attempts); err != nil {
		return fmt.Errorf("results: %s: %w", EventsFile, err)
	}
	if c.Interrupted {
		return nil
	}
	if err := writeResult(f.results, c); err != nil {
		return fmt.Errorf("results: %s: %w", ResultsFile, err)
	}
	if err := writeHistograms(f.histogramLog, c); err != nil {
		return fmt.Errorf("results: %s: %w", HistogramsFile, err)
	}
	return nil
}

// Manifest returns the content of run.json. To change run.json, call [Folder.SetManifest] with a
// changed copy.
func (f *Folder) Manifest() Manifest { return f.manifest }

func (f *Folder) SetManifest(m Manifest) error {
	f.manifest = m
	return writeManifest(f.Dir, m)
}

func (f *Folder) Close(state State) error {
	err := f.eventLog.Close()
	m := f.manifest
	m.State = state
	return errors.Join(err, f.SetManifest(m), f.closeFiles())
}

func (f *Folder) closeFiles() error {
	var err error
	for _, file := range []*os.File{f.results, f.events, f.histograms} {
		if file != nil {
			err = errors.Join(err, file.Close())
		}
	}
	return err
}
