package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/internal/configtest"
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
		for _, flags := range []Servers{
			{Targets: []string{"redis=@" + file}}, {Targets: []string{"redis=" + text}}, {Targets: []string{text}},
			{Config: []string{text}}, {Config: []string{"redis." + text}}, {Targets: []string{"mysql=@" + file}, Config: []string{"redis.a=" + text}},
		} {
			if len(flags.Targets) > 0 {
				if _, value, _ := strings.Cut(flags.Targets[0], "="); strings.HasPrefix(value, "@") && value != "@"+file {
					continue // the name of a file
				}
			}
			var shown strings.Builder
			err := flags.read(&shown)
			configtest.Hides(t, text, err)
			if strings.Contains(shown.String(), configtest.Needle) {
				t.Errorf("%q: %s", text, shown.String())
			}
		}
	})
}

// TestPasswordAmongArguments: a password that the list of processes shows is warned
// of, and the path of a file with one is not.
func TestPasswordAmongArguments(t *testing.T) {
	for arg, warned := range map[string]bool{
		"redis.password=" + configtest.Needle: true, "redis.sentinel_password=" + configtest.Needle: true,
		"redis.password_file=/run/redis": false, "redis.prefix=app:": false,
	} {
		var stderr strings.Builder
		s := Servers{Config: []string{arg}}
		if err := s.read(&stderr); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(stderr.String(), "warning: "); got != warned || strings.Contains(stderr.String(), configtest.Needle) {
			t.Errorf("%s: %q", arg, &stderr)
		}
	}
}
