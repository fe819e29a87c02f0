package plugin_test

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
	"github.com/lockbench/lockbench/core/plugin/plugintest"
)

// copied copies the memory plugin into a new directory. The parameters mode and above are the
// permissions of that directory and of its parent directory.
func copied(t *testing.T, above, mode fs.FileMode) string {
	t.Helper()
	binary, err := os.ReadFile(plugintest.Build(t, memoryMain))
	if err != nil {
		t.Fatal(err)
	}
	outer := filepath.Join(t.TempDir(), "outer")
	dir := filepath.Join(outer, "plugins")
	path := filepath.Join(dir, "lockplugin-memory")
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(path, binary, 0o755), os.Chmod(dir, mode), os.Chmod(outer, above))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefusesWhatOthersCouldReplace(t *testing.T) {
	safe := copied(t, 0o755, 0o755)
	opened(t, "memory", plugin.Options{Path: safe})
	opened(t, "memory", plugin.Options{Path: copied(t, 0o777|fs.ModeSticky, 0o775)})
	for _, path := range []string{copied(t, 0o755, 0o777), copied(t, 0o755, 0o777|fs.ModeSticky), copied(t, 0o777, 0o755)} {
		refused(t, "memory", plugin.Options{Path: path}, plugin.ErrUnsafe, "any user may write to")
		refused(t, "memory", plugin.Options{Dirs: []string{filepath.Dir(path)}}, plugin.ErrUnsafe)
		if _, err := plugin.Describe(t.Context(), path); !errors.Is(err, plugin.ErrUnsafe) {
			t.Errorf("Describe runs it: %v", err)
		}
	}
	open := filepath.Join(t.TempDir(), "open")
	link := filepath.Join(open, "lockplugin-memory")
	if err := errors.Join(os.Mkdir(open, 0o755), os.Symlink(safe, link), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	refused(t, "memory", plugin.Options{Path: link}, plugin.ErrUnsafe, open)
	if err := os.Chmod(safe, 0o757); err != nil {
		t.Fatal(err)
	}
	refused(t, "memory", plugin.Options{Path: safe}, plugin.ErrUnsafe, safe)
}

// TestSwappedBinaryIsNotStarted checks that a dead plugin whose binary was replaced stays down.
func TestSwappedBinaryIsNotStarted(t *testing.T) {
	path := copied(t, 0o755, 0o755)
	binary, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sums := filepath.Join(t.TempDir(), "plugins.sha256")
	if err := os.WriteFile(sums, fmt.Appendf(nil, "%x  lockplugin-memory\n", sha256.Sum256(binary)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := plugintest.Open(t, "memory", &plugin.Options{Path: path, Checksums: sums})
	if err := errors.Join(os.WriteFile(path+".new", append(binary, '!'), 0o755), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
	signalPlugin(t, b, syscall.SIGKILL)
	eventually(t, timeout, "the checksum is the reason why there is no plugin", func() bool {
		_, err := b.TryAcquire(t.Context(), request("jobs", "a"))
		return errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "wrong checksum")
	})
	if pid, ok := plugin.ProcessOf(b); ok {
		t.Errorf("the swapped binary runs as process %d", pid)
	}
}

func sockets(t *testing.T) (all []string) {
	t.Helper()
	for _, dir := range socketDirs(t) {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type()&fs.ModeSocket != 0 {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(all) == 0 {
		t.Fatal("there is no socket")
	}
	return all
}

// The as function calls f in a thread that runs as the user uid, without capabilities.
func as(uid int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			panic(errno)
		}
		f()
	}()
	<-done
}

func TestAnotherUserCannotConnect(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can act as a second user")
	}
	plugintest.Open(t, "memory", &plugin.Options{Path: plugintest.Build(t, memoryMain), NoMTLS: true})
	dial := func(path string) error {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
		}
		return err
	}
	const nobody = 65534
	for _, path := range sockets(t) {
		if err := dial(path); err != nil {
			t.Errorf("its own user cannot connect to %s: %v", path, err)
		}
		var err, listing error
		as(nobody, func() {
			err = dial(path)
			_, listing = os.ReadDir(socketDirs(t)[0])
		})
		if !errors.Is(err, fs.ErrPermission) || !errors.Is(listing, fs.ErrPermission) {
			t.Errorf("another user connects to %s: %v; lists its directory: %v", path, err, listing)
		}
	}
}

// intruder returns a client that connects to the plugin, but is not the plugin's host.
func intruder(t *testing.T) lockpb.PluginClient {
	t.Helper()
	for _, path := range sockets(t) {
		conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		c := lockpb.NewPluginClient(conn)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err = c.Check(ctx, &lockpb.CheckRequest{})
		cancel()
		if err == nil {
			return c
		}
	}
	t.Fatal("no socket answers in protocol version 1")
	return nil
}

// TestStrangersNeitherReleaseNorRenew uses a second client of the same user, without mutual TLS.
// This client's Release, Renew and Proclaim must fail if the owner id or the token is wrong.
func TestStrangersNeitherReleaseNorRenew(t *testing.T) {
	b := plugintest.Open(t, "memory", &plugin.Options{Path: plugintest.Build(t, memoryMain), NoMTLS: true})
	token, err := b.TryAcquire(t.Context(), request("jobs", "holder"))
	if err != nil {
		t.Fatal(err)
	}
	c := intruder(t)
	for what, r := range map[string]*lockpb.Request{
		"no owner":        {Name: "jobs", Token: token},
		"another owner":   {Name: "jobs", Owner: "stranger", Token: token},
		"another token":   {Name: "jobs", Owner: "holder", Token: token + 1},
		"an older token":  {Name: "jobs", Owner: "holder", Token: token - 1},
		"neither of them": {Name: "jobs", Owner: "stranger", Token: 1},
	} {
		r.TtlNs = int64(time.Hour)
		for name, call := range map[string]func(context.Context, *lockpb.Request, ...grpc.CallOption) (*lockpb.Reply, error){
			"Release": c.Release, "Renew": c.Renew, "Proclaim": c.Proclaim,
		} {
			reply, err := call(t.Context(), r)
			if err != nil || reply.Error == nil {
				t.Errorf("%s with %s: %v, %v; want a refusal", name, what, reply, err)
			}
		}
	}
	if reply, err := c.Withdraw(t.Context(), &lockpb.Request{Name: "jobs", Owner: "stranger"}); err != nil || reply.Error != nil {
		t.Errorf("withdrawing a stranger: %v, %v", reply, err)
	}
	h, err := b.Inspect(t.Context(), "jobs")
	if err != nil || h.Owner != "holder" || h.Token != token || h.TTL > longTTL {
		t.Errorf("after all that the lock is %+v, %v", h, err)
	}
}

// TestMutualTLSKeepsClientsOut checks that a client without the host's certificate gets no answer,
// even if it runs as the host's user.
func TestMutualTLSKeepsClientsOut(t *testing.T) {
	plugintest.Open(t, "memory", &plugin.Options{Path: plugintest.Build(t, memoryMain), Protocol: 1})
	for _, path := range sockets(t) {
		conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := lockpb.NewPluginClient(conn).Check(ctx, &lockpb.CheckRequest{}); err == nil {
			t.Errorf("%s answers a client without a certificate", path)
		}
	}
}

func TestPluginGainsNoPrivileges(t *testing.T) {
	// setting reads NoNewPrivs in /proc/WHO/status. The value is "1" if WHO can gain no privileges.
	setting := func(who string) string {
		status, err := os.ReadFile(filepath.Join("/proc", who, "status"))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "NoNewPrivs:\t")
		return rest[:1]
	}
	threads := func(pid int) []string {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil || len(tasks) == 0 {
			t.Fatal(tasks, err)
		}
		return tasks
	}
	before := setting("self")
	static := filepath.Join(t.TempDir(), "lockplugin-memory")
	build := exec.Command("go", "build", "-o", static, memoryMain)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, path := range []string{static, plugintest.Build(t, memoryMain)} {
		b := plugintest.Open(t, "memory", &plugin.Options{Path: path})
		pid, ok := plugin.ProcessOf(b)
		if !ok {
			t.Fatal("the plugin is down")
		}
		for _, task := range threads(pid) {
			if got := setting(strings.TrimPrefix(task, "/proc/")); got != "1" {
				t.Errorf("no_new_privs of the plugin's %s is %s", task, got)
			}
		}
	}
	for _, task := range threads(os.Getpid()) {
		if got := setting(strings.TrimPrefix(task, "/proc/")); got != before {
			t.Errorf("no_new_privs of the host's %s is %s", task, got)
		}
	}
}

// TestPrivilegedBinaryIsRefused checks that Open does not start a binary with set-user-ID,
// set-group-ID or file capabilities. Such a plugin would have more privileges than its host.
func TestPrivilegedBinaryIsRefused(t *testing.T) {
	path := copied(t, 0o755, 0o755)
	for _, mode := range []fs.FileMode{fs.ModeSetuid, fs.ModeSetgid} {
		if err := os.Chmod(path, 0o755|mode); err != nil {
			t.Fatal(err)
		}
		refused(t, "memory", plugin.Options{Path: path}, plugin.ErrPrivileged, "set-user-ID or set-group-ID")
		if _, err := plugin.Describe(t.Context(), path); !errors.Is(err, plugin.ErrPrivileged) {
			t.Errorf("described with mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	// The attribute is a C struct vfs_cap_data, version 2, that permits CAP_NET_BIND_SERVICE.
	capability := binary.LittleEndian.AppendUint32(nil, 0x02000000)
	capability = append(binary.LittleEndian.AppendUint32(capability, 1<<10), make([]byte, 12)...)
	if err := unix.Setxattr(path, "security.capability", capability, 0); err != nil {
		t.Skip("this user or file system has no file capabilities:", err)
	}
	refused(t, "memory", plugin.Options{Path: path}, plugin.ErrPrivileged, "file capabilities")
}
