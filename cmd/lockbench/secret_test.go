package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/configtest"
	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

// FuzzTargetNeedle: no error about a target or its configuration shows a
// password, in whatever form it was given.
func FuzzTargetNeedle(f *testing.F) {
	for i := range configtest.Haystacks {
		f.Add(uint(i), uint(0), byte(0))
		f.Add(uint(i), uint(i), byte('='))
	}
	f.Add(uint(1), uint(30), byte('@')) // password=@, which names a file
	file := filepath.Join(f.TempDir(), "target")
	f.Fuzz(func(t *testing.T, form, at uint, sign byte) {
		text := configtest.Mutate(configtest.Haystacks[form%uint(len(configtest.Haystacks))], at, sign)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flags := range []serverFlags{
			{targets: []string{"redis=@" + file}}, {targets: []string{"redis=" + text}}, {targets: []string{text}},
			{config: []string{text}}, {config: []string{"redis." + text}}, {targets: []string{"mysql=@" + file}, config: []string{"redis.a=" + text}},
		} {
			if len(flags.targets) > 0 {
				if _, value, _ := strings.Cut(flags.targets[0], "="); strings.HasPrefix(value, "@") && value != "@"+file {
					continue // the name of a file
				}
			}
			var shown strings.Builder
			_, err := flags.configOf("redis", &shown)
			configtest.Hides(t, text, err)
			if strings.Contains(shown.String(), configtest.Needle) {
				t.Errorf("%q: %s", text, shown.String())
			}
		}
	})
}

// The file that an application mounts is the file of a target too, and where
// it is wrong its password is not shown.
func TestTargetIsTheApplicationsFile(t *testing.T) {
	dir := plugins(t)
	server := redisServer(t, &redisserver.Options{Password: hush})
	file := filepath.Join(t.TempDir(), "redis.conf")
	for _, tt := range []struct {
		text string
		code int
	}{
		{"# mounted\naddress=" + server.Addr() + "\npassword=" + hush + "\nprefix=app:\n", exitOK},
		{`{"address": "` + server.Addr() + `", "password": "` + hush + `"}`, exitOK},
		{"redis://:" + hush + "@" + server.Addr(), exitOK},
		{"address=" + server.Addr() + " password=" + hush, exitEnvironment},
		{"address: " + server.Addr() + "\npassword: " + hush, exitUsage},
		{"address=" + server.Addr() + "\npasword=" + hush, exitUsage},
		{server.Addr() + "\npassword=" + hush, exitUsage},
	} {
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"locks", "list", "redis"}, {"locks", "inspect", "redis", "x"},
			{"run", "--backends", "redis", "--runs", "1", "--clients", "1", "--measure", "100ms", "-o", filepath.Join(t.TempDir(), "out")},
		} {
			if args[0] == "run" && tt.code == exitOK && strings.HasPrefix(tt.text, "{") {
				continue // as the lines
			}
			code, stdout, stderr := lockbench(t, append(args, "--target", "redis=@"+file, "--plugin-dir", dir)...)
			if code != tt.code || strings.Contains(stdout+stderr, hush) {
				t.Errorf("%q: %v: exit %d, want %d\n%s%s", tt.text, args, code, tt.code, stdout, stderr)
			}
		}
	}
}

// TestPasswordAmongArguments: a password that the list of processes shows is warned
// of, and the path of a file with one is not.
func TestPasswordAmongArguments(t *testing.T) {
	for arg, warned := range map[string]bool{
		"redis.password=" + hush: true, "redis.sentinel_password=" + hush: true,
		"redis.password_file=/run/redis": false, "redis.prefix=app:": false,
	} {
		var stderr strings.Builder
		f := serverFlags{config: []string{arg}}
		if _, _, err := f.parse(&stderr); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(stderr.String(), "warning: "); got != warned || strings.Contains(stderr.String(), hush) {
			t.Errorf("%s: %q", arg, &stderr)
		}
	}
}
