package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/lockbench/lockbench/internal/ports"
	"github.com/lockbench/lockbench/internal/servers"
)

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
	if opts == nil {
		opts = &Options{}
	}
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
		all[i].cluster = strings.Join(cluster, ",")
		return servers.Launch(ctx, all[i].recipe())
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

func (m *member) recipe() servers.Recipe {
	return servers.Recipe{
		Product: "etcd",
		Keeps:   true,
		Ports:   m.ports,
		Prepare: m.argv,
		Ready:   m.ready,
		Data:    []string{"data"},
	}
}

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, loopback("http", m.metrics())+"/health", nil)
	if err != nil {
		return err
	}
	req.Close = true // close the connection after the reply
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("its health is %s", strings.TrimSpace(string(body)))
	}
	return nil
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
	var dirs []string
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(self))
	}
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "tools", "etcd", "go.mod")); err == nil {
				dirs = append(dirs, filepath.Join(dir, "bin"))
				break
			}
		}
	}
	return servers.Wanted{Name: "etcd", Debian: "etcd-server", Homebrew: "etcd", Before: dirs}.Find()
}
