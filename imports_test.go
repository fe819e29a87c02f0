// Package lockbench_test tests the repository: the imports of the packages, and the facts in the
// documents.
package lockbench_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/lockbench/lockbench/"

// A rule forbids imports of paths in or below forbid, except paths in or below allow. A path in
// allow that begins with "!" stays forbidden, and so do all paths below it.
type rule struct {
	dirs     []string // the packages, and all packages below them; "!" in front excludes a path
	forbid   []string // import prefixes
	allow    []string // exceptions to forbid
	because  string
	stdOnly  bool // only the standard library and the paths in allow may be imported
	thisOnly bool // the rule is only for dirs, not for packages below them
}

// shared has the packages that hosts, plugins and the benchmark may all import.
var shared = []string{module + "internal/similar", module + "internal/proc", module + "internal/rawio"}

var rules = []rule{
	{
		dirs: []string{"core/driver"}, stdOnly: true,
		allow:   []string{module + "core/driver", module + "internal/similar"}, // internal/similar imports only the standard library
		because: "the contract is what an author of a backend reads and compiles against: it must not drag anything in",
	},
	{
		dirs: []string{"core"}, thisOnly: true,
		forbid:  []string{module + "core/plugin", module + "core/drivertest", module + "plugins/", module + "bench", module + "internal/", "google.golang.org/", "github.com/hashicorp/"},
		allow:   shared,
		because: "applications import core; transport and backends are the plugin's affair and may change without them",
	},
	{
		dirs: []string{"core/internal"}, stdOnly: true,
		because: "core and core/plugin do not import each other; what both need knows neither",
	},
	{
		dirs: []string{"internal/similar", "internal/proc", "internal/rawio"}, stdOnly: true,
		allow:   []string{"golang.org/x/sys"}, // to read the machine's clock
		because: "what hosts, plugins and the benchmark need alike knows none of them",
	},
	{
		dirs:    []string{"core/otel"},
		forbid:  []string{module, "go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters"},
		allow:   []string{module + "core", "!" + module + "core/plugin", "!" + module + "core/drivertest"},
		because: "an application chooses its exporters; what only turns events into metrics needs the API alone",
	},
	{
		dirs:    []string{"core/tick", "core/status"},
		forbid:  []string{module, "google.golang.org/", "github.com/hashicorp/"},
		allow:   []string{module + "core", "!" + module + "core/plugin", "!" + module + "core/drivertest"},
		because: "what is built on locks needs locks alone: any backend will do",
	},
	{
		dirs: []string{"core/fence"}, stdOnly: true,
		because: "the resource side must be usable in programs that take no locks",
	},
	{
		dirs:    []string{"core/plugin", "core/plugin/serve", "core/plugin/lockpb"},
		forbid:  []string{module + "core", module + "plugins/", module + "bench", module + "internal/"},
		allow:   append([]string{module + "core/driver", module + "core/internal", module + "core/plugin", "!" + module + "core/plugin/plugintest"}, shared...),
		because: "a plugin carries driver.Backend over a wire: queues, renewal and deadlines live in core, once, on the host's side",
		// Package plugintest is below core/plugin but may import core, so this rule must omit it.
		thisOnly: true,
	},
	{
		dirs:    []string{"core/drivertest"},
		forbid:  []string{module},
		allow:   []string{module + "core", "!" + module + "core/plugin", module + "core/driver", module + "internal/proc"},
		because: "the suite judges any backend, in process or behind a wire, so it knows only core and the contract",
	},
	{
		dirs:    []string{"plugins", "!plugins/internal/backendtest", "!plugins/etcd/internal/clustertest", "!plugins/etcd/internal/cluster"}, // only tests import the first two
		forbid:  []string{module, "google.golang.org/grpc", "github.com/hashicorp/"},
		allow:   []string{module + "core/driver", module + "core/plugin/serve", module + "internal/rawio", module + "plugins/"},
		because: "a backend library is driver plus its own client; its main adds serve, and nothing else",
	},
	{
		dirs:    []string{"plugins/etcd/internal/cluster"},
		forbid:  []string{module, "google.golang.org/grpc", "github.com/hashicorp/"},
		allow:   []string{module + "core/driver", module + "plugins/", "google.golang.org/grpc"},
		because: "etcd's client leaves to grpc how it connects, and only its connections are to know that",
	},
	{
		dirs:    []string{"bench", "internal", "!bench/internal/baseline", "cmd"},
		forbid:  []string{module + "plugins/"},
		because: "only shipped binaries are measured; bench/internal/baseline alone holds libraries in process, for comparison",
	},
	{
		dirs:    []string{"cmd"},
		forbid:  []string{module},
		allow:   []string{module + "bench", module + "core"},
		because: "a command is flags, one call of bench, and an exit code",
	},
	{
		dirs: []string{"internal/claim"}, stdOnly: true,
		because: "claims are data: what judges, harms and documents reads them",
	},
	{
		dirs:    []string{"internal/inject"},
		forbid:  []string{module},
		allow:   []string{module + "internal/ports", module + "internal/proc"},
		because: "processes, connections and clocks break alike under any store: tests of plugins use the kit, too",
	},
	{
		dirs:    []string{"internal/servers"},
		forbid:  []string{module},
		allow:   append([]string{module + "core/driver", module + "core/fence", module + "internal/claim", module + "internal/inject", module + "internal/ports", module + "internal/servers"}, shared...),
		because: "benchmark and tests of plugins ask servers, which know nobody who asks, and no backend's library",
	},
	{
		dirs:    []string{"core", "plugins", "!plugins/internal/backendtest", "!plugins/etcd/internal/clustertest"}, // only tests import these two
		forbid:  []string{module + "bench", module + "cmd", module + "internal/"},
		allow:   append([]string{module + "internal/ports"}, shared...), // plugintest imports some of these
		because: "what applications ship knows nothing of what measures and breaks it",
	},
	{
		dirs:    []string{"bench/internal/load"},
		forbid:  []string{module + "bench", module + "internal/"},
		allow:   append([]string{module + "bench/internal/results"}, shared...),
		because: "scenarios and baselines both build on load, so load knows neither",
	},
	{
		dirs:    []string{"bench/internal/results", "bench/internal/check", "bench/internal/report"},
		forbid:  []string{module + "bench", module + "internal/", module + "core/plugin", module + "plugins/"},
		allow:   append([]string{module + "internal/claim", module + "bench/internal/results", module + "bench/internal/check", module + "bench/internal/report"}, shared...),
		because: "a result folder is judged and rendered anywhere, without any server; of a store it asks what that does not promise",
	},
	{
		dirs:    []string{"bench/internal/measure", "bench/internal/baseline"},
		forbid:  []string{module + "bench/internal/report"},
		because: "measuring does not know how results are shown",
	},
}

func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		dir := strings.TrimPrefix(p.ImportPath, module)
		for _, r := range rules {
			if !r.concerns(dir) {
				continue
			}
			for _, imp := range p.Imports {
				if r.forbids(imp, dir) {
					t.Errorf("%s imports %s: %s", dir, imp, r.because)
				}
			}
		}
	}
}

func TestBackendsDoNotMeet(t *testing.T) {
	for _, p := range packages(t) {
		own, ok := backendOf(p.ImportPath)
		if !ok {
			continue
		}
		for _, imp := range p.Imports {
			if other, ok := backendOf(imp); ok && other != own && other != "internal" && own != "internal" {
				t.Errorf("%s imports %s: a backend never needs another one; what two share is plugins/internal", p.ImportPath, imp)
			}
		}
	}
}

func backendOf(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, module+"plugins/")
	if !ok {
		return "", false
	}
	name, _, _ := strings.Cut(rest, "/")
	return name, true
}

func (r rule) concerns(dir string) bool {
	for _, d := range r.dirs {
		if not, ok := strings.CutPrefix(d, "!"); ok && within(dir, not) {
			return false
		}
	}
	return slices.ContainsFunc(r.dirs, func(d string) bool {
		return dir == d || !r.thisOnly && within(dir, d)
	})
}

func (r rule) forbids(imp, dir string) bool {
	for _, a := range r.allow {
		if not, ok := strings.CutPrefix(a, "!"); ok && within(imp, not) {
			return true
		}
	}
	if slices.ContainsFunc(r.allow, func(a string) bool { return within(imp, a) }) {
		return false
	}
	if r.stdOnly {
		first, _, _ := strings.Cut(imp, "/")
		return strings.Contains(first, ".")
	}
	return slices.ContainsFunc(r.forbid, func(f string) bool { return strings.HasSuffix(f, "/") && strings.HasPrefix(imp, f) || within(imp, f) })
}

func within(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return path == dir || strings.HasPrefix(path, dir+"/")
}

type pkg struct {
	ImportPath string
	Imports    []string
	Doc        string
	GoFiles    []string // without test files
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Doc,GoFiles", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}
