package frame

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// checkPeer must compare effective users: the kernel reports a peer's effective user,
// which may differ from its real user. A plugin inherits both users from its host.
func TestPeerOfAnotherRealUser(t *testing.T) {
	const child = "LOCKBENCH_TEST_EUID"
	dir := os.Getenv(child)
	if dir == "" {
		if os.Getuid() != 0 {
			t.Skip("only root can become another effective user")
		}
		dir, err := os.MkdirTemp("/tmp", "euid-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestPeerOfAnotherRealUser$")
		cmd.Env = append(os.Environ(), child+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := syscall.Setreuid(-1, 65534); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setreuid(-1, 0)
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := checkPeer(conn.(*net.UnixConn), os.Getpid()); err != nil {
		t.Error(err)
	}
}
