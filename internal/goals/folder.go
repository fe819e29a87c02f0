package goals

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/lockbench/lockbench/internal/record"
)

// Folder is one result folder.
type Folder struct {
	Dir        string
	Manifest   record.Manifest
	Incomplete error // why its figures do not count; nil when they do

	results    []record.Result
	histograms map[record.HistogramKey]*hdrhistogram.Histogram
}

// ErrNoFolders: there is no result folder below a directory.
var ErrNoFolders = errors.New("no result folder")

// Load reads the result folders directly below dir, the earliest first. One
// whose run was not done is kept, so that a goal can say that it was not.
func Load(dir string) ([]Folder, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Folder
	for _, e := range entries {
		sub := filepath.Join(dir, e.Name())
		if _, err := os.Stat(filepath.Join(sub, record.ManifestFile)); err != nil {
			continue
		}
		f, err := read(sub)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", sub, err)
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w in %s", ErrNoFolders, dir)
	}
	slices.SortFunc(out, func(a, b Folder) int { return a.Manifest.Started.Compare(b.Manifest.Started) })
	return out, nil
}

func read(dir string) (Folder, error) {
	f := Folder{Dir: dir}
	var err error
	if f.Manifest, err = record.ReadManifest(dir); err != nil {
		return f, err
	}
	if _, f.Incomplete = record.ReadWhole(dir); f.Incomplete != nil {
		return f, nil
	}
	if f.results, err = record.ReadResults(dir); err != nil {
		return f, err
	}
	f.histograms, err = record.ReadHistograms(dir)
	return f, err
}

// cell picks the lines of one cell.
type cell struct {
	scenario, backend string
	mode              string // "" for any
	hosts             int    // -1 for any
	clients           int    // 0 for any
	hold              bool   // leases are held
	fencing           string // of the subject; "" for any
	noMTLS            bool
}

func (c cell) String() string {
	s := c.scenario + " of " + c.backend
	if c.mode != "" {
		s += ", " + c.mode
	}
	if c.hosts > 0 {
		s += fmt.Sprintf(", %d hosts", c.hosts)
	}
	if c.clients > 0 {
		s += fmt.Sprintf(", %d clients", c.clients)
	}
	if c.hold {
		s += ", held"
	}
	if c.fencing != "" {
		s += ", fencing " + c.fencing
	}
	if c.noMTLS {
		s += ", without mutual TLS"
	}
	return s
}

// matches compares what is in a line's name.
func (c cell) matches(scenario, backend, mode string, hosts, clients int, held bool) bool {
	return c.scenario == scenario && c.backend == backend && c.hold == held &&
		(c.mode == "" || c.mode == mode) && (c.hosts < 0 || c.hosts == hosts) && (c.clients == 0 || c.clients == clients)
}

// in reports whether the folder measured the subject of the cell as the cell
// wants it.
func (c cell) in(f Folder) bool {
	s := f.Manifest.Subject(c.backend)
	return s.Name != "" && f.Manifest.Plan.MTLS != c.noMTLS &&
		(c.scenario == floor || slices.Contains(f.Manifest.Plan.Scenarios, c.scenario)) && (c.fencing == "" || c.fencing == s.Fencing)
}

// lines are those of the cell in one folder, run by run.
func (f Folder) lines(c cell) []record.Result {
	var out []record.Result
	for _, r := range f.results {
		if c.matches(r.Scenario, r.Backend, r.Mode, r.Hosts, r.Clients, r.Hold > 0) {
			out = append(out, r)
		}
	}
	return out
}

// find returns the folder that has all the cells; the last one of several.
func find(folders []Folder, cells ...cell) (Folder, error) {
	why := fmt.Sprintf("no folder has %v", cells[0])
	for _, f := range slices.Backward(folders) {
		if !slices.ContainsFunc(cells, func(c cell) bool { return !c.in(f) }) {
			missing := slices.IndexFunc(cells, func(c cell) bool { return len(f.lines(c)) == 0 })
			if f.Incomplete == nil && missing < 0 {
				return f, nil
			}
			why = cmp.Or(reason(f, cells[max(0, missing)]), why)
		}
	}
	if len(cells) > 1 && strings.HasPrefix(why, "no folder has") {
		why += fmt.Sprintf(" beside %v", cells[1])
	}
	return Folder{}, errors.New(why)
}

// reason is what the folder itself says of a cell that it lacks; "" for
// nothing.
func reason(f Folder, c cell) string {
	if f.Incomplete != nil {
		return cmp.Or(f.Manifest.Failure, fmt.Sprintf("%s is %s", filepath.Base(f.Dir), f.Manifest.State))
	}
	for _, s := range f.Manifest.Skipped {
		if strings.HasPrefix(s, c.backend) {
			return s
		}
	}
	return ""
}
