// Package ports reserves ports of the loopback interface for servers that are about to be started.
//
// A port that is free when it is chosen may be in use when the server binds it. Another process may
// have chosen it, or the kernel may use it for an outgoing connection. So this package chooses
// ports that the kernel does not give to outgoing connections. Until the caller gives the port
// back, the package binds the UDP port of the same number. Meanwhile no other user of this package
// can take the port. A UDP port hinders no server, and the kernel frees it when this process ends.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Taken is a set of ports that no other caller gets until Close.
type Taken struct {
	numbers []int
	locks   []net.PacketConn
}

// Take returns count different ports on which no process listens on 127.0.0.1.
func Take(count int) (*Taken, error) {
	t := &Taken{}
	low, high := rangeOf(os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"))
	var last error
	for tries := 50 * count; len(t.numbers) < count; tries-- {
		if tries == 0 {
			return nil, fmt.Errorf("ports: no %d free ports from %d to %d: %w", count, low, high, errors.Join(last, t.Close()))
		}
		last = t.take(low + rand.IntN(high-low+1))
	}
	return t, nil
}

func (t *Taken) take(port int) error {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	lock, err := net.ListenPacket("udp4", addr)
	if err != nil {
		return err
	}
	if err := unused(addr); err != nil {
		return errors.Join(err, lock.Close())
	}
	t.numbers, t.locks = append(t.numbers, port), append(t.locks, lock)
	return nil
}

// unused returns nil if no process listens on addr. To find out, it connects to addr. It must not
// listen there, because a child that this process starts at that moment would keep the listening
// socket open until the child executes its program. During that time no server could bind the port.
func unused(addr string) error {
	c, err := net.DialTimeout("tcp4", addr, answers)
	switch {
	case err == nil:
		return errors.Join(fmt.Errorf("ports: another process listens on %s", addr), c.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil
	}
	return err
}

// The constant answers limits how long unused waits until a connection is accepted or refused.
const answers = time.Second

func (t *Taken) Port(i int) int { return t.numbers[i] }

func (t *Taken) Addr(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.Port(i))) }

// Close gives the ports back. It may be called twice, and on nil.
func (t *Taken) Close() error {
	if t == nil {
		return nil
	}
	var err error
	for _, l := range t.locks {
		err = errors.Join(err, l.Close())
	}
	t.locks = nil
	return err
}

// usualLow and usualHigh are the ends of the range that rangeOf prefers.
const usualLow, usualHigh = 16000, 32000

// rangeOf returns a range of ports that outgoing connections do not use. The parameters file and
// err are the result of reading the file in which Linux states the range for outgoing connections.
// rangeOf returns usualLow and usualHigh if this range is unknown or has no port between them, or
// if less than 1000 ports are left on each side of this range.
func rangeOf(file []byte, err error) (low, high int) {
	var from, to int
	if err == nil {
		_, err = fmt.Sscan(string(file), &from, &to)
	}
	if err != nil || from > usualHigh || to < usualLow {
		return usualLow, usualHigh
	}
	const first, last, least = 1024, 65535, 1000
	below, above := from-first, last-to
	switch {
	case below >= above && below >= least:
		return first, from - 1
	case above >= least:
		return to + 1, last
	}
	return usualLow, usualHigh
}
