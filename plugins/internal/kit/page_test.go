package kit_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd"
	"github.com/lockbench/lockbench/plugins/memory"
	"github.com/lockbench/lockbench/plugins/mysql"
	"github.com/lockbench/lockbench/plugins/postgres"
	"github.com/lockbench/lockbench/plugins/redis"
	"github.com/lockbench/lockbench/plugins/redlock"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const page = "../../../docs/configuration.md"

func specs() []driver.Spec {
	return []driver.Spec{redis.Spec, redlock.Spec, mysql.Spec, postgres.Spec, etcd.Spec, memory.Spec}
}

// TestPage checks that docs/configuration.md lists the configuration keys of all backends.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), "-update -->\n")
	_, tail, ok := strings.Cut(rest, "<!-- end of keys -->")
	if !ok {
		t.Fatalf("%s has no place for the keys", page)
	}
	want := head + "-update -->\n" + table() + "<!-- end of keys -->" + tail
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not list the keys that the backends have; run this test with -update", page)
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// table returns the page's table of keys. Keys that several backends share come first.
func table() string {
	type row struct{ backends, defaults []string }
	rows := map[string]*row{}
	var names []string
	docs := map[string]string{}
	for _, s := range specs() {
		for _, k := range s.Keys {
			r := rows[k.Name]
			if r == nil {
				r = &row{}
				rows[k.Name], docs[k.Name] = r, k.Doc
				names = append(names, k.Name)
			}
			if docs[k.Name] != k.Doc {
				docs[k.Name] = "" // the backends have different texts for this key
			}
			r.backends = append(r.backends, s.Name)
			r.defaults = append(r.defaults, standard(k))
		}
	}
	var b strings.Builder
	b.WriteString("\n| key | of | default | |\n|---|---|---|---|\n")
	for _, shared := range []bool{true, false} {
		for _, name := range names {
			r := rows[name]
			if (len(r.backends) > 1) != shared {
				continue
			}
			of := strings.Join(r.backends, ", ")
			if len(r.backends) == len(specs())-1 { // all backends except memory, which has no keys
				of = "all"
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, of, defaults(r.backends, r.defaults), describe(name, docs[name]))
		}
	}
	return b.String() + "\n"
}

func standard(k driver.Key) string {
	switch {
	case k.Required:
		return "required"
	case k.Default == "":
		return ""
	}
	return "`" + k.Default + "`"
}

// defaults returns a key's default, or each default with its backends if the defaults differ.
func defaults(backends, of []string) string {
	if len(slices.Compact(slices.Clone(of))) == 1 {
		return of[0]
	}
	var each []string
	for i, d := range of {
		if slices.Index(of, d) < i {
			continue
		}
		var with []string
		for j := range of {
			if of[j] == d {
				with = append(with, backends[j])
			}
		}
		if d == "" {
			d = "none"
		}
		each = append(each, strings.Join(with, ", ")+" "+d)
	}
	return strings.Join(each, "; ")
}

// describe returns a key's documentation, or each text with its backends if the texts differ.
func describe(name, doc string) string {
	if doc != "" {
		return strings.ReplaceAll(doc, "|", `\|`)
	}
	var each, said []string
	for _, s := range specs() {
		for _, k := range s.Keys {
			if k.Name != name {
				continue
			}
			if i := slices.Index(said, k.Doc); i >= 0 {
				each[i] = strings.Replace(each[i], ": ", ", "+s.Name+": ", 1)
				continue
			}
			said, each = append(said, k.Doc), append(each, s.Name+": "+k.Doc)
		}
	}
	return strings.ReplaceAll(strings.Join(each, "<br>"), "|", `\|`)
}

// TestSharedKeys checks that a configuration key has the same type on every backend, and that keys
// for passwords are marked as secret.
func TestSharedKeys(t *testing.T) {
	first := map[string]driver.Key{}
	for _, s := range specs() {
		for _, k := range s.Keys {
			if k.Doc == "" {
				t.Errorf("%s: %s has no doc", s.Name, k.Name)
			}
			if strings.HasSuffix(k.Name, "password") != k.Secret && !strings.HasSuffix(k.Name, "address") {
				t.Errorf("%s: %s is secret: %v", s.Name, k.Name, k.Secret)
			}
			f, ok := first[k.Name]
			if !ok {
				first[k.Name] = k
				continue
			}
			oneOrMany := k.Name == "address" // a data source name may contain commas
			if f.Type != k.Type && !oneOrMany {
				t.Errorf("%s of %s is a %s, elsewhere a %s", k.Name, s.Name, k.Type, f.Type)
			}
		}
	}
	for _, s := range specs()[:5] {
		for _, k := range []string{
			"address", "username", "password", "password_file", "prefix", "tls_enabled", "tls_ca_file", "tls_cert_file",
			"tls_key_file", "tls_server_name", "tls_insecure", "dial_timeout", "request_timeout",
		} {
			if !slices.ContainsFunc(s.Keys, func(own driver.Key) bool { return own.Name == k }) {
				t.Errorf("%s has no %s", s.Name, k)
			}
		}
	}
	if k := etcd.Spec.Keys[slices.IndexFunc(etcd.Spec.Keys, func(k driver.Key) bool { return k.Name == "prefix" })]; k.Default != etcd.DefaultPrefix {
		t.Errorf("the default prefix of etcd is %q and %q", k.Default, etcd.DefaultPrefix)
	}
}
