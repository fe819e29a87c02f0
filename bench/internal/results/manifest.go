package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// State says whether a run has ended and, if so, how it ended.
type State string

// If a run was killed, the state in its folder stays StateRunning.
const (
	StateRunning     State = "running"
	StateDone        State = "done"
	StateInterrupted State = "interrupted"
	StateFailed      State = "failed"
)

// Manifest is the content of run.json: a run's plan, programs, machine and subjects.
type Manifest struct {
	Format    int       `json:"format"`
	State     State     `json:"state"`
	Failure   string    `json:"failure,omitempty"` // why State is failed
	Started   time.Time `json:"started"`
	Elapsed   float64   `json:"elapsed_s"`
	Lockbench string    `json:"lockbench"` // the version of lockbench
	Plan      Plan      `json:"plan"`
	Machine   Machine   `json:"machine"`
	Subjects  []Subject `json:"subjects"`
	// MachineLoad is the load of the machine by other work. It is nil while the run goes on, or if
	// lockbench did not watch the machine.
	MachineLoad *MachineLoad `json:"machine_load,omitempty"`
	// Rendezvous is set if other machines measured at the same time, in runs of the same plan.
	Rendezvous *Rendezvous `json:"rendezvous,omitempty"`
	// Parts are the runs that were merged into the folder of this run.json. Together says how much
	// their measurements overlap in time. Both are empty if no runs were merged.
	Parts    []Part    `json:"merged_from,omitempty"`
	Together *Together `json:"together,omitempty"`
	// Binaries has the SHA-256 of lockbench and of each plugin, with the names of the files as keys.
	Binaries map[string]string `json:"binaries_sha256"`
	// Skipped says what was not measured, and why not.
	Skipped []string `json:"skipped,omitempty"`
	// Failed has the planned cells (each a subject under one load) that could not be measured.
	Failed []FailedCell `json:"failed_cells,omitempty"`
	// Notes say where the run differs from what the user asked for. Findings describe unexplained
	// events that no figure shows.
	Notes    []string `json:"notes,omitempty"`
	Findings []string `json:"findings,omitempty"`
}

// FailedCell is a planned measurement that failed and therefore has no figures.
type FailedCell struct {
	Backend string `json:"backend"`        // name of the subject
	Cell    string `json:"cell,omitempty"` // "acquire, 64 clients"; "" for all cells of the subject
	Run     int    `json:"run,omitempty"`  // 0 for all runs
	Reason  string `json:"reason"`
}

// MeasuredFor returns the default time for which a run measures each cell (a subject under one
// load). A quick plan has a shorter time.
func MeasuredFor(quick bool) time.Duration {
	if quick {
		return 150 * time.Millisecond
	}
	return time.Second
}

type Plan struct {
	Seed       uint64          `json:"seed"`
	Backends   []string        `json:"backends"`
	Baselines  []string        `json:"baselines"`
	Scenarios  []string        `json:"scenarios"`
	Clients    []int           `json:"clients,omitempty"`    // none: each scenario's default
	Hosts      []int           `json:"hosts"`                // none: each scenario's default
	Keys       []int           `json:"keys,omitempty"`       // of throughput; none: its default
	Hold       []time.Duration `json:"hold_ns,omitempty"`    // of throughput, contend, footprint; none: defaults
	RTT        []time.Duration `json:"rtt_ns,omitempty"`     // added between hosts and store
	Rate       float64         `json:"rate,omitempty"`       // of the open loop; 0: half the closed loop's rate
	Modes      []string        `json:"modes,omitempty"`      // of takeover; none: kill-host
	Candidates int             `json:"candidates,omitempty"` // of takeover; 0: its default
	TickMs     int64           `json:"tick_ms,omitempty"`    // of takeover
	ForMs      int64           `json:"for_ms,omitempty"`     // of scenario ttl, all runs together
	Stress     bool            `json:"stress,omitempty"`     // lockbench loaded processors and disk
	Runs       int             `json:"runs"`
	Parts      int             `json:"parts,omitempty"` // runs that measure together; 0: only this run
	TTLms      int64           `json:"ttl_ms"`
	WarmUpms   int64           `json:"warm_up_ms"`
	Measurems  int64           `json:"measure_ms"`
	MTLS       bool            `json:"mtls"`
	Quick      bool            `json:"quick"`
	Env        string          `json:"env"`
	OwnTargets []string        `json:"own_targets,omitempty"` // backends that had a --target
	Commands   []string        `json:"commands,omitempty"`    // the values of --server
	Claims     []string        `json:"claims,omitempty"`      // backends with --claims
	Config     []string        `json:"config,omitempty"`      // keys set by --config, as BACKEND.KEY; no values, which may be secret
}

// Machine describes the machine of the run, without names of users, hosts or networks.
type Machine struct {
	OS     string `json:"os"`
	Arch   string `json:"arch"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	Files  string `json:"files,omitempty"` // the file system of temporary files, on Linux
}

type Kind string

const (
	KindPlugin   Kind = "plugin"   // one of our backends through its plugin
	KindBaseline Kind = "baseline" // a lock library that is called in process, without a plugin
	KindFloor    Kind = "floor"    // calls that do no work: the smallest possible cost of an operation
)

// Subject is what a run measures: a backend through its plugin, a baseline (a library without a
// plugin), or a floor (calls that do no work). In results.txt its name follows "backend=".
type Subject struct {
	Name       string `json:"name"`
	Kind       Kind   `json:"kind"`
	Version    string `json:"version,omitempty"` // version of the plugin or library
	Server     string `json:"server,omitempty"`  // product and version of the server
	Durability string `json:"durability,omitempty"`
	Fencing    string `json:"fencing,omitempty"`
	Scope      string `json:"scope,omitempty"`
	// SurvivesCrash reports whether grants survive a crash of the server's machine. Like Durability,
	// it follows from settings of the server. It is nil for a baseline.
	SurvivesCrash *bool `json:"survives_crash,omitempty"`
	// Without is the list of features that this baseline lacks and that plugins have.
	Without []string `json:"without,omitempty"`
	// BuildOf is set for the second build of a plugin, in a run that compares two builds. It is the
	// name of the subject with the first build.
	BuildOf string `json:"build_of,omitempty"`
	// Reference is the name of the baseline that reports compare this subject with.
	Reference string `json:"reference,omitempty"`
}

// OtherBuild ends the name of a second build: "mine-vs" is the second build of "mine".
const OtherBuild = "-vs"

// Subject returns the subject with the given name, or the zero Subject if there is none.
func (m Manifest) Subject(name string) Subject {
	for _, s := range m.Subjects {
		if s.Name == name {
			return s
		}
	}
	return Subject{}
}

// writeManifest replaces run.json by a rename. A crash therefore leaves either the old or the new
// text, but no mixture.
func writeManifest(dir string, m Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("results: %s: %w", ManifestFile, err)
	}
	next := filepath.Join(dir, ManifestFile+".next")
	if err := os.WriteFile(next, append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(next, filepath.Join(dir, ManifestFile))
}

// ReadManifest reads run.json of a folder. The error wraps [ErrNotAFolder] if run.json cannot be
// read, or if another file of the folder is missing. It wraps [ErrLater] if a later version of
// lockbench wrote the folder.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	b, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, fmt.Errorf("%w: %s has no %s", ErrNotAFolder, dir, ManifestFile)
	}
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrNotAFolder, err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrNotAFolder, filepath.Join(dir, ManifestFile), err)
	}
	switch {
	case m.Format < 1:
		return m, fmt.Errorf("%w: %s is not of lockbench", ErrNotAFolder, filepath.Join(dir, ManifestFile))
	case m.Format > Format:
		return m, fmt.Errorf("%w: %s is of format %d, this one reads up to %d", ErrLater, dir, m.Format, Format)
	}
	for _, file := range []string{ResultsFile, EventsFile, HistogramsFile} {
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			return m, fmt.Errorf("%w any more: %w", ErrNotAFolder, err)
		}
	}
	return m, nil
}

// Differs lists the differences of two plans that forbid a comparison of their figures. It ignores,
// for example, the seed, the number of runs, and the place of the servers.
func (p Plan) Differs(q Plan) []string {
	return differing([]setting{
		{"backends", set(p.Backends), set(q.Backends)},
		{"scenarios", set(p.Scenarios), set(q.Scenarios)},
		{"clients", p.Clients, q.Clients},
		{"hosts", p.hosts(), q.hosts()},
		{"keys", p.Keys, q.Keys},
		{"holds", p.Hold, q.Hold},
		{"round trips", p.RTT, q.RTT},
		{"rates", p.Rate, q.Rate},
		{"modes of takeover", p.Modes, q.Modes},
		{"candidates", p.Candidates, q.Candidates},
		{"ticks in ms", p.TickMs, q.TickMs},
		{"times of scenario ttl in ms", p.ForMs, q.ForMs},
		{"stress", p.Stress, q.Stress},
		{"TTLs", time.Duration(p.TTLms) * time.Millisecond, time.Duration(q.TTLms) * time.Millisecond},
		{"warm-ups", time.Duration(p.WarmUpms) * time.Millisecond, time.Duration(q.WarmUpms) * time.Millisecond},
		{"measured times", time.Duration(p.Measurems) * time.Millisecond, time.Duration(q.Measurems) * time.Millisecond},
		{"parts", p.Parts, q.Parts},
	})
}

// hosts returns the plan's numbers of hosts or, if the plan has none, the default of one host.
func (p Plan) hosts() []int {
	if len(p.Hosts) == 0 {
		return []int{1}
	}
	return p.Hosts
}

// Elsewhere lists settings which show that the servers of two plans were in different places.
func (p Plan) Elsewhere(q Plan) []string {
	return differing([]setting{
		{"environments", p.Env, q.Env},
		{"own targets", set(p.OwnTargets), set(q.OwnTargets)},
	})
}

type setting struct {
	what string
	a, b any
}

func differing(all []setting) (out []string) {
	for _, f := range all {
		if a, b := fmt.Sprint(f.a), fmt.Sprint(f.b); a != b {
			out = append(out, fmt.Sprintf("%s %s and %s", f.what, a, b))
		}
	}
	return out
}

func set(names []string) []string { return slices.Compact(slices.Sorted(slices.Values(names))) }
