package frame

import (
	"bufio"
	"os"
	"os/exec"
	"testing"
)

// startFar starts this binary again, as the plugin of [BenchmarkCall].
func startFar(b *testing.B) (dir string, pid int) {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	dir, err = os.MkdirTemp("", "frame-")
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "FRAME_BENCH_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // fails because the process was killed
		os.RemoveAll(dir)
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	return dir, cmd.Process.Pid
}
