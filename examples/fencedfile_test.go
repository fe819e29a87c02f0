package examples_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// testFencedfile stops a writer, between its read and its write, until its lease has expired.
// Another writer then reads under the lock, so the file must refuse the stopped writer's write.
func testFencedfile(t *testing.T, w system) {
	file := filepath.Join(t.TempDir(), "shared.txt")
	stale := w.run(t, "fencedfile", "--file", file, "--label", "stale", "--pause", "4s", "--max-hold", "1h")
	stale.await(t, 0, "has read 0 bytes")
	stale.signal(syscall.SIGSTOP)
	next := w.run(t, "fencedfile", "--file", file, "--label", "next", "--pause", "4s")
	next.await(t, 0, "has read 0 bytes")
	stale.signal(syscall.SIGCONT)
	stale.await(t, 0, "refused: stale fencing token")
	<-stale.exited
	next.await(t, 0, "has written")
	<-next.exited
	checkFile(t, file, "next")
}

func TestFencedfileInOneProcess(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shared.txt")
	p := run(t, "fencedfile", "--instances", "3", "--pause", "8s", "--file", file, "--label", "app")
	p.await(t, 0, "app/1 refused: stale fencing token")
	<-p.exited
	checkFile(t, file, "app/2", "app/3")
}

// TestFencedfileWithoutCheck shows that the file must check tokens. Without the check, a writer
// whose lease has ended overwrites the lines of other writers.
func TestFencedfileWithoutCheck(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "shared.txt")
	p := run(t, "fencedfile", "--instances", "3", "--pause", "8s", "--file", file, "--label", "app", "--check=false")
	p.await(t, 0, "app/1 has written")
	<-p.exited
	checkFile(t, file, "app/1")
}

func checkFile(t *testing.T, file string, writers ...string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	missing := len(lines) != len(writers)
	for _, w := range writers {
		missing = missing || !strings.Contains(string(text), w+" under token ")
	}
	if missing {
		t.Errorf("the file has the lines %q; want one from each of %q", lines, writers)
	}
}
