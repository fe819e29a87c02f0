// Package etcd starts etcd clusters, and changes or breaks them as operators do.
package etcd

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

const (
	One   = "one"
	Three = "three"
	// Balanced is three members behind one address. New connections go to the members in turn.
	Balanced = "balanced"
	// FewOperations is one member that allows 64 operations in a transaction. The default is 128.
	FewOperations = "few-operations"
)

// members is the size of a Three or Balanced cluster. A smaller cluster has no minority.
const members = 3

var Kind = &servers.Kind{
	Name: "etcd",
	Lacks: map[servers.Capability]string{
		servers.CapClock:    "etcd asks the kernel for the time, where no library can move it",
		servers.CapReplica:  "its members agree on every write: there is no asynchronous replica",
		servers.CapVotes:    "its members agree on every write",
		servers.CapSentinel: "its members elect a leader by themselves",
		servers.CapSlots:    "every member has all keys",
		servers.CapEvict:    "etcd deletes no keys by itself",
		servers.CapExhaust:  "one connection carries all requests of a host, and etcd has no limit of them"},
	Settings: []servers.Setting{
		{Name: One, Servers: 1}, {Name: Three, Servers: members, Elects: true},
		{Name: Balanced, Servers: members, Elects: true, Balanced: true}, {Name: FewOperations, Servers: 1},
	},
	SyncsUntold: true,
	ExpiryStep:  500 * time.Millisecond, // interval of expiry checks (server/lease/lessor.go)

	Prepare:    prepare,
	Operations: operations,
	Launch:     func(ctx context.Context, _ bool) (servers.Nodes, error) { return StartCluster(ctx, 1, nil) },
	Services:   []string{"etcd1", "etcd2", "etcd3"},
	HostIn:     regexp.MustCompile(`^http://([^/?]+)`),
	Counter:    count,
	Remove:     remove,
	Program:    Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	s := &store{Environment: e}
	size := 1
	// With the default value, true, etcd changes its members only after 5 s without a disturbance.
	args := []string{"--strict-reconfig-check=false"}
	if w.Setting == FewOperations {
		args = append(args, "--max-txn-ops=64")
	}
	if w.Setting == Three || w.Setting == Balanced {
		size = members
		s.peers = &Peers{}
		e.AtEnd(s.peers.Close)
	}
	e.Product = s
	e.AtEnd(s.endStray)
	var err error
	e.Servers, err = StartCluster(ctx, size, &Options{Peers: s.peers, Args: args})
	return err
}

// Options describe etcd members. The zero value is a member that uses no TLS,
// asks for no password and flushes every commit to the disk.
type Options struct {
	// Binary is the path of the program. The default is the program that "make servers" builds from
	// tools/etcd into bin/. If it is missing, the default is the first etcd on the PATH.
	Binary string
	// CertFile and KeyFile are PEM files. With them, the client port speaks TLS.
	CertFile, KeyFile string
	// ClientCAFile is a CA's PEM file. With it, clients need a certificate that the CA has signed.
	ClientCAFile string
	// Peers relay the messages between members. Without Peers, members connect directly.
	Peers *Peers
	// Args are added after the arguments of this package. They override arguments of the same name.
	Args []string
}

// Start starts a cluster of one member and returns when the member answers. A nil opts
// means the zero value. The error wraps [servers.ErrNotInstalled] if no etcd is installed.
func Start(ctx context.Context, opts *Options) (*servers.Server, error) {
	members, err := StartCluster(ctx, 1, opts)
	if err != nil {
		return nil, err
	}
	return members[0], nil
}

// StartCluster starts size members at the same time, and returns when all answer.
// Each member can then be stopped, frozen, closed and started again with its
// data. A member that is started without its data does not rejoin the cluster.
func StartCluster(ctx context.Context, size int, opts *Options) (servers.Nodes, error) {
	opts = cmp.Or(opts, &Options{})
	binary, err := binary(opts.Binary)
	if err != nil {
		return nil, err
	}
	all := make([]*member, size)
	cluster := make([]string, size)
	for i := range all {
		m := &member{binary: binary, name: "m" + strconv.Itoa(i+1), opts: opts}
		if m.ports, err = ports.Take(3); err != nil {
			for _, other := range all[:i] {
				err = errors.Join(err, other.ports.Close())
			}
			return nil, err
		}
		m.advertised = m.peer()
		if opts.Peers != nil {
			if m.advertised, err = opts.Peers.relay(m.peer()); err != nil {
				return nil, err
			}
		}
		all[i], cluster[i] = m, m.name+"="+loopback("http", m.advertised)
	}
	return servers.StartNodes(size, func(i int) (*servers.Server, error) {
		m := all[i]
		m.cluster = strings.Join(cluster, ",")
		return servers.Launch(ctx, servers.Recipe{Product: "etcd", Keeps: true, Ports: m.ports, Prepare: m.argv, Ready: m.ready, Data: []string{"data"}})
	})
}

type member struct {
	binary, name, cluster string
	advertised            int // the peer port that the other members use
	opts                  *Options
	ports                 *ports.Taken // for clients, peers and metrics
}

func (m *member) peer() int    { return m.ports.Port(1) }
func (m *member) metrics() int { return m.ports.Port(2) }

func (m *member) argv(dir string, port int, joins bool) ([]string, error) {
	scheme := "http"
	var secure []string
	if m.opts.CertFile != "" {
		scheme = "https"
		secure = []string{"--cert-file=" + m.opts.CertFile, "--key-file=" + m.opts.KeyFile}
	}
	if m.opts.ClientCAFile != "" {
		secure = append(secure, "--client-cert-auth", "--trusted-ca-file="+m.opts.ClientCAFile)
	}
	state := "new"
	if joins {
		state = "existing"
	}
	client, peer := loopback(scheme, port), loopback("http", m.peer())
	argv := []string{
		m.binary, "--name=" + m.name, "--data-dir=" + filepath.Join(dir, "data"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + loopback("http", m.advertised),
		"--initial-cluster=" + m.cluster, "--initial-cluster-state=" + state,
		// The client port may ask for a certificate, but the metrics port with /health never does.
		"--listen-metrics-urls=" + loopback("http", m.metrics()),
		"--logger=zap", "--log-level=warn",
	}
	return append(append(argv, secure...), m.opts.Args...), nil
}

func loopback(scheme string, port int) string {
	return scheme + "://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// ready returns nil if the member is healthy: it has served a read that needs a leader.
func (m *member) ready(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := get(ctx, loopback("http", m.metrics())+"/health")
	return err
}

// each has a connection for each request, so that none stays open.
var each = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := each.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it says %s", bytes.TrimSpace(body))
	}
	return string(body), err
}

// Program returns the path of the program that [Start] runs, or why it was not found.
func Program() servers.Program {
	path, err := binary("")
	return servers.Program{Name: "etcd", Path: path, Err: err, Built: "make servers builds it from Go modules"}
}

// binary finds the server program. It first looks in this program's directory and in bin/ of the
// source tree, where "make servers" puts the program built from tools/etcd. It searches the PATH
// last, because a packaged program may be years old.
func binary(explicit string) (string, error) {
	if explicit != "" {
		return explicit, nil
	}
	self, _ := os.Executable() // if it is unknown, only the PATH is searched instead
	dirs := []string{filepath.Dir(self)}
	if tree := servers.Tree(); tree != "" {
		dirs = append(dirs, filepath.Join(tree, "bin"))
	}
	return servers.Wanted{Name: "etcd", Debian: "etcd-server", Homebrew: "etcd", Before: dirs}.Find()
}
