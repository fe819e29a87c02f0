package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/plugins/etcd"
	"github.com/lockbench/lockbench/plugins/mysql"
	"github.com/lockbench/lockbench/plugins/postgres"
	"github.com/lockbench/lockbench/plugins/redis"
	"github.com/lockbench/lockbench/plugins/redlock"
)

// commands returns root and all commands below it, except hidden ones and those that cobra adds.
func commands(root *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if c.Name() != "help" && c.Name() != "completion" && !c.Hidden {
			out = append(out, commands(c)...)
		}
	}
	return out
}

func TestHelp(t *testing.T) {
	for _, c := range commands(newRoot()) {
		if strings.Contains(c.UsageString(), "(default [])") {
			t.Errorf("%s: a list that is empty by default says so", c.CommandPath())
		}
		if c.Example == "" || c.Short == "" {
			t.Errorf("%s has no example", c.CommandPath())
		}
		for line := range strings.Lines(c.Example) {
			if !strings.HasPrefix(strings.TrimSpace(line), "lockbench ") && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				t.Errorf("%s: the example %q is no command of lockbench", c.CommandPath(), line)
			}
		}
		for line := range strings.Lines(c.Long) {
			if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 80 {
				t.Errorf("%s: longer than 80 columns: %s", c.CommandPath(), line)
			}
		}
	}
}

func TestHelpIsShort(t *testing.T) {
	for name, most := range map[string]int{"run": 80, "faults": 60} {
		_, help, _ := lockbench(t, name, "--help")
		if n := strings.Count(help, "\n"); n > most {
			t.Errorf("the help of %s has %d lines, more than %d", name, n, most)
		}
	}
}

func TestExamplesParse(t *testing.T) {
	specs := map[string]driver.Spec{"redis": redis.Spec, "redlock": redlock.Spec, "mysql": mysql.Spec, "postgres": postgres.Spec, "etcd": etcd.Spec}
	for _, c := range commands(newRoot()) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, " && ")
			line, _, _ = strings.Cut(line, " > ")
			line, _, _ = strings.Cut(line, " -- ") // the rest belongs to another program
			args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(line))
			if len(args) < 2 {
				continue
			}
			var out bytes.Buffer
			if err := run(t.Context(), append(args[1:], "--help"), &out, &out); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
			for i, arg := range args[1:] {
				if setting, _, _ := strings.Cut(arg, "="); args[i] == "--config" {
					backend, key, _ := strings.Cut(setting, ".")
					if spec, ok := specs[backend]; ok && !slices.ContainsFunc(spec.Keys, func(k driver.Key) bool { return k.Name == key }) {
						t.Errorf("%s: %s has no key %q", strings.TrimSpace(line), backend, key)
					}
				}
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	dir := plugins(t)
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"run", "--plugin-dir", dir, "--backends", ""}, []string{"memory", "redis"}},
		{[]string{"run", "--plugin-dir", dir, "--backends", "memory,"}, []string{"memory,redis"}},
		{[]string{"run", "--scenarios", ""}, []string{"all", "acquire", "takeover"}},
		{[]string{"run", "--baselines="}, []string{"all", "redislock", "go-redis"}},
		{[]string{"faults", "--faults", "reset,"}, []string{"reset,restart", "reset,evict"}},
		{[]string{"faults", "--actions", ""}, []string{"kill-host", "redis-evict"}},
		{[]string{"faults", "--replay", ""}, []string{"all", "reaper"}},
		{[]string{"run", "--plugin-dir", dir, "--target", ""}, []string{"memory=", "redis="}},
		{[]string{"check", "--format", ""}, []string{"text", "json"}},
		{[]string{"conform", "--plugin-dir", dir, ""}, []string{"memory", "redis"}},
		{[]string{"locks", "list", "--plugin-dir", dir, ""}, []string{"memory", "redis"}},
		{[]string{"locks", ""}, []string{"list", "inspect", "break"}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if err := run(context.WithoutCancel(t.Context()), append([]string{"__complete"}, tt.args...), &stdout, &stderr); err != nil {
				t.Fatal(err)
			}
			offered := map[string]bool{}
			for line := range strings.Lines(stdout.String()) {
				word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
				offered[word] = true
			}
			for _, want := range tt.want {
				if !offered[want] {
					t.Errorf("%q is not offered: %q", want, stdout.String())
				}
			}
		})
	}
}
