package flock_test

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/drivertest"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

func TestMain(m *testing.M) { plugintest.Main(m) }

// few are cases that say the most in the least time.
var few = []string{
	"K2 a refused try leaves nothing behind", "K2 try decides once and says who holds", "K3 a withdrawn owner is refused",
	"K6 names are kept as they are and never collide",
	"L6 tokens rise over release", "L7 release compares the token", "L7 the lock of a killed host is free at once",
}

// TestConformance holds the plugin to the rules of the contract: to all of
// them where there is time.
func TestConformance(t *testing.T) {
	binary := plugintest.Build(t, "./lockplugin-flock")
	only := few
	if os.Getenv("LOCKBENCH_LONG") == "1" {
		only = nil
	}
	drivertest.Run(t, func(ct drivertest.T) *drivertest.Harness {
		dir := filepath.Join(t.TempDir(), rand.Text())
		in := func(prefix string) func(drivertest.T) driver.Config {
			return func(drivertest.T) driver.Config { return driver.Config{"dir": dir, "prefix": prefix} }
		}
		h := plugintest.Binary(binary, in(""))(ct)
		h.Other = func(ct drivertest.T) driver.Backend { return plugintest.Binary(binary, in("other"))(ct).Open(ct) }
		h.Store = &directory{path: dir}
		h.Leftovers = func(drivertest.T) []string {
			left, _ := filepath.Glob(filepath.Join(dir, "lock-*"))
			return left
		}
		return h
	}, only...)
}

// directory is the store as a case harms it: it is away, or all its stripes are
// locked by somebody who does not come back.
type directory struct {
	path   string
	frozen []*os.File
}

func (d *directory) Stop(t drivertest.T) {
	t.Helper()
	err := os.Rename(d.path, d.path+".away")
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(d.path+".away", 0o700)
	}
	must(t, errors.Join(err, os.WriteFile(d.path, nil, 0o600)))
}

func (d *directory) Start(t drivertest.T, keepData bool) {
	t.Helper()
	must(t, os.Remove(d.path))
	if !keepData {
		must(t, os.RemoveAll(d.path+".away"))
		return
	}
	must(t, os.Rename(d.path+".away", d.path))
}

func (d *directory) Freeze(t drivertest.T) {
	t.Helper()
	must(t, os.MkdirAll(d.path, 0o700))
	const digits = "0123456789abcdef"
	for i := range 256 {
		f, err := os.OpenFile(filepath.Join(d.path, "stripe-"+string([]byte{digits[i/16], digits[i%16]})), os.O_RDWR|os.O_CREATE, 0o600)
		must(t, err)
		must(t, syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
		d.frozen = append(d.frozen, f)
	}
}

func (d *directory) Resume(drivertest.T) {
	for _, f := range d.frozen {
		f.Close()
	}
	d.frozen = nil
}

func must(t drivertest.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}
