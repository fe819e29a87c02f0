package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

var testSpec = driver.Spec{
	Name: "test",
	Doc:  "a backend for these tests",
	Keys: []driver.Key{
		{Name: "address", Type: driver.TypeList, Required: true, Doc: "where the store is"},
		{Name: "timeout", Type: driver.TypeDuration, Default: "1s", Doc: "of a request"},
		{Name: "password", Type: driver.TypeString, Default: "letmein", Secret: true, Doc: "of the user"},
	},
	Properties: driver.Properties{
		Fencing: driver.FencingStrict, Scope: driver.ScopeShared, TTLMin: 10 * time.Millisecond,
		TTLStep: time.Millisecond, TTLMax: time.Hour, Capabilities: []driver.Capability{driver.CapWaiter},
	},
	Commands: []driver.Command{{Name: "init", Doc: "prepares the store", Run: initCommand}},
}

func initCommand(_ context.Context, cfg driver.Config, stdout io.Writer) error {
	if cfg["address"] == "nowhere" {
		return fmt.Errorf("%w: %s with %s", driver.ErrConfig, cfg["address"], cfg["password"])
	}
	if cfg["address"] == "bad" {
		return fmt.Errorf("%s refuses %s", cfg["address"], cfg["password"])
	}
	_, err := fmt.Fprintf(stdout, "%s in %v", cfg.List("address"), cfg.Duration("timeout"))
	return err
}

func run(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, errOut bytes.Buffer
	code = command(context.Background(), testSpec, args, strings.NewReader(stdin), &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte("# a comment\n\n address = a:1, b:2 \ntimeout=2s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		stdin  string
		code   int
		stdout string
		stderr string
	}{
		{nil, "", 1, "", "starts it; it does nothing by itself"},
		{[]string{"--help"}, "", 0, "describe [--json]", ""},
		{[]string{"--version"}, "", 0, "lockplugin-test ", ""},
		{[]string{"describe"}, "", 0, "in steps of 1ms", ""},
		{[]string{"describe", "--jsn"}, "", 2, "", "did you mean --json?"},
		{[]string{"desribe"}, "", 2, "", "did you mean describe?"},
		{[]string{"init", "--config", file}, "", 0, "[a:1 b:2] in 2s", ""},
		{[]string{"init"}, `{"address": "c:3", "timeout": "3s"}`, 0, "[c:3] in 3s", ""},
		{[]string{"init"}, "adress=c:3", 2, "", "did you mean address?"},
		{[]string{"init"}, "timeout=3s", 2, "", `needs "address"`},
		{[]string{"init"}, "address=c:3\ntimeuot=1s", 2, "", "did you mean timeout?"},
		{[]string{"init"}, "address", 2, "", "line 1 is not key=value"},
		{[]string{"init"}, `{"address": []}`, 2, "", "a value is not a string, number or boolean"},
		{[]string{"init"}, `{"address": `, 2, "", "not a valid JSON object"},
		{[]string{"init", "--config", file + ".none"}, "", 2, "", "no such file"},
		{[]string{"init", "--confg", file}, "", 2, "", "--config FILE of lines KEY=VALUE"},
		{[]string{"init", "--address=a:1,b:2", "--timeout=2s"}, "ignored", 0, "[a:1 b:2] in 2s", ""},
		{[]string{"init", "--timeout=2s"}, "", 2, "", "lockplugin-test init --address=HOST:PORT,HOST:PORT,HOST:PORT"},
		{[]string{"init", "--address=redis://u:hunter2@a:1"}, "", 2, "", "address on the command line can be seen"},
		{[]string{"init", "a:1"}, "", 2, "", `"a:1" is not of the form --KEY=VALUE`},
		{[]string{"init", "--address=a:1", "--password=hunter2"}, "", 2, "", "password on the command line can be seen"},
		{[]string{"init"}, "address=bad\npassword=hunter2", 1, "", "bad refuses [secret]"},
		{[]string{"init"}, "address=nowhere\npassword=hunter2", 2, "", "nowhere with [secret]"},
	} {
		code, stdout, stderr := run(c.stdin, c.args...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%q with %q: code %d, stdout %q, stderr %q", c.args, c.stdin, code, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, "hunter2") || strings.Contains(stdout, "letmein") {
			t.Errorf("%q shows a secret: %q %q", c.args, stdout, stderr)
		}
	}
}

func TestDescribeJSON(t *testing.T) {
	_, stdout, _ := run("", "describe", "--json")
	var d wire.Description
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	if d.Name != "test" || len(d.Keys) != 3 || d.Properties.TTLMin != "10ms" || d.Keys[2].Default != "" || !d.Keys[2].Secret || d.Commands[0].Name != "init" {
		t.Errorf("got %+v", d)
	}
}

func TestLogLinesAreHclog(t *testing.T) {
	var out bytes.Buffer
	redact := &wire.Redactor{}
	redact.SetConfig(map[string]string{"password": "hunter2"}, secretKey(testSpec))
	newLogger(&out, redact).Warn("cannot log in", "as", "hunter2", "level", 3)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line["@level"] != "warn" || line["@message"] != "cannot log in" || line["as"] != "[secret]" || line["@timestamp"] == nil {
		t.Errorf("got %s", out.String())
	}
}
