package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	redisserver "github.com/lockbench/lockbench/internal/servers/redis"
)

const hush = "hush-hush"

// --target accepts the configuration file of an application. An error about a mistake in the file
// must not show the file's password.
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
				continue // the form with several lines already tests this
			}
			code, stdout, stderr := lockbench(t, append(args, "--target", "redis=@"+file, "--plugin-dir", dir)...)
			if code != tt.code || strings.Contains(stdout+stderr, hush) {
				t.Errorf("%q: %v: exit %d, want %d\n%s%s", tt.text, args, code, tt.code, stdout, stderr)
			}
		}
	}
}
