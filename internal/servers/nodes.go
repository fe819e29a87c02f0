package servers

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lockbench/lockbench/internal/inject"
)

// Nodes are several servers.
type Nodes []*Server

// Addr lists the addresses by commas.
func (n Nodes) Addr() string { return strings.Join(n.Addrs(), ",") }

// Addrs are the addresses.
func (n Nodes) Addrs() []string {
	addrs := make([]string, len(n))
	for i, s := range n {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Init runs the init command of the plugin at the path binary, so that the
// servers, which are fresh, vote at once. config has further lines of the plugin's
// configuration, "key=value"; those that the hosts will use are needed here too.
func (n Nodes) Init(ctx context.Context, binary string, config ...string) error {
	return Init(ctx, binary, append(config, "address="+n.Addr())...)
}

// Init is [Nodes.Init] for servers of any kind, whose addresses are among the lines
// of the configuration.
func Init(ctx context.Context, binary string, config ...string) error {
	cmd := exec.CommandContext(ctx, binary, "init")
	cmd.Stdin = strings.NewReader(strings.Join(config, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		name := strings.TrimPrefix(filepath.Base(binary), "lockplugin-")
		return fmt.Errorf("servers: init of %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Close closes all servers at the same time.
func (n Nodes) Close() error {
	return inject.AtOnce(len(n), func(i int) error {
		if n[i] == nil {
			return nil
		}
		return n[i].Close()
	})
}
