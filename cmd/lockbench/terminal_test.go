//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal is a pseudo terminal on which a shell with job control runs.
type terminal struct {
	t      *testing.T
	fd     int // of the master; File.Fd would make the file blocking, and then Close would wait
	master *os.File
	mu     sync.Mutex
	shown  bytes.Buffer
}

func startTerminal(t *testing.T) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	shell := exec.Command("sh", "-i")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	shell.Env = append(os.Environ(), "PS1=", "ENV=")
	// Without Notify, the shell would ignore SIGHUP if this test runs under nohup.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	c := &terminal{t: t, fd: fd, master: master}
	var reading sync.WaitGroup
	reading.Go(func() {
		for b := make([]byte, 4096); ; {
			n, err := master.Read(b)
			c.mu.Lock()
			c.shown.Write(b[:n])
			c.mu.Unlock()
			if err != nil { // no process has the other end of the terminal open
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = shell.Process.Kill() // the shell has jobs, and would not end without this
		_ = shell.Wait()
		reading.Wait()
		master.Close()
	})
	return c
}

// The types method sends keys, and waits until the terminal shows the given text.
func (c *terminal) types(keys, text string) {
	c.t.Helper()
	c.mu.Lock()
	c.shown.Reset()
	c.mu.Unlock()
	if _, err := c.master.WriteString(keys); err != nil {
		c.t.Fatal(err)
	}
	eventually(c.t, fmt.Sprintf("after %q it shows %q", keys, text), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return strings.Contains(c.shown.String(), text)
	})
}

// Job control must work for a command under a lock as it does for a command without a lock.
func TestLockOnTerminal(t *testing.T) {
	g := startGuarded(t)
	const ctrlC, ctrlD, ctrlZ = "\x03", "\x04", "\x1a"
	under := func(command string) string {
		return g.binary + " lock redis tty --target redis=" + g.server.Addr() + " --plugin-dir " + g.dir + " -- " + command + "\n"
	}
	c := startTerminal(t)
	// The typed text appears twice, because the terminal echoes it and cat writes it.
	c.types(under("sh -c 'echo ready; exec cat'"), "\nready")
	c.types("one\n", "one\r\none\r\n")
	c.types(ctrlZ, "Stopped")
	c.types("fg; echo st''atus $?\n", "lock redis tty") // dash shows the resumed command
	c.types("two\n", "two\r\ntwo\r\n")
	c.types(ctrlD, "status 0")
	c.types(under("sh -c 'echo ready; sleep 600; true'"), "\nready")
	c.types(ctrlC, "^C") // Ctrl-C also discards keys that were typed ahead
	c.types("echo st''atus $?\n", "status 130")
	// The command stops itself, but not the other processes of its process group.
	c.types(under("sh -c 'kill -STOP $$; exit 4'"), "Stopped")
	c.types("fg; echo st''atus $?\n", "status 4")
	// Change the size of the window, and then put the command into the background.
	c.types(under("sh -c 'trap \"stty size\" WINCH; echo ready; while :; do sleep 0.05; done'"), "\nready")
	if err := unix.IoctlSetWinsize(c.fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 99}); err != nil {
		t.Fatal(err)
	}
	c.types("", "33 99")
	c.types(ctrlC, "^C")
	c.types(strings.TrimSuffix(under("cat"), "\n")+" & wait; jobs\n", "Stopped") // reading stops cat
	c.types("kill %1; fg; echo st''atus $?\n", "status 143")
}

// If the terminal is closed, as by a lost "ssh -t" connection, the command and its process group
// must end, like those of a command without a lock.
func TestLockWithoutItsTerminal(t *testing.T) {
	g := startGuarded(t)
	c := startTerminal(t)
	c.types("exec "+g.binary+" lock redis gone --target redis="+g.server.Addr()+" --plugin-dir "+g.dir+
		" -- sh -c 'sleep 600 & echo ready; wait'\n", "\nready")
	if err := c.master.Close(); err != nil {
		t.Fatal(err)
	}
	g.acquire(t, "gone", func() {})
}
