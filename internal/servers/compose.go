package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lockbench/lockbench/internal/ports"
)

// Compose is a docker compose project with the servers of the repository's compose.yaml.
// [Compose.Up] starts services on free loopback ports. Close removes them. If the process ends
// without Close, a watcher process removes the services. Only one goroutine may use a Compose.
type Compose struct {
	project, file string
	taken         []*ports.Taken
	watch         *watcher
}

// composeTimeout is the longest time that a backend's services may take to become healthy. It
// includes the download of their images.
const composeTimeout = 5 * time.Minute

// removeProject is a script that waits until its standard input ends. It then
// removes the project's networks, volumes and containers, even frozen containers.
const removeProject = `
trap '' HUP INT TERM
while read -r _; do :; done
mine="label=com.docker.compose.project=$1"
ids=$(docker ps -aq --filter "$mine"); [ -z "$ids" ] || docker rm --force --volumes $ids
ids=$(docker network ls -q --filter "$mine"); [ -z "$ids" ] || docker network rm $ids
ids=$(docker volume ls -q --filter "$mine"); [ -z "$ids" ] || docker volume rm --force $ids
`

// NewCompose prepares a project. It starts only the process that later removes the services, and no
// service. It fails if docker, docker's daemon or compose v2 is missing.
func NewCompose(ctx context.Context) (*Compose, error) {
	tree := Tree()
	if tree == "" {
		return nil, fmt.Errorf("%w: lockbench's compose.yaml is neither above the working directory nor above this program", errNoCompose)
	}
	err := dockerWorks(ctx)
	if err != nil {
		return nil, err
	}
	c := &Compose{
		project: "lockbench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano()%1e6, 36),
		file:    filepath.Join(tree, composeFile),
	}
	if c.watch, err = startWatcher(removeProject, c.project); err != nil {
		return nil, err
	}
	return c, nil
}

var errNoCompose = errors.New("docker compose cannot be used")

func dockerWorks(ctx context.Context) error {
	for _, p := range slices.Backward(ContainerPrograms()) {
		if p.AskVersion(ctx); p.Err != nil {
			return fmt.Errorf("%w: %w", errNoCompose, p.Err)
		}
	}
	return nil
}

func docker(ctx context.Context, environ []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C does not reach docker
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(errs.String())
		if said == "" {
			return "", fmt.Errorf("docker %s: %w", args[0], err)
		}
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, said[strings.LastIndexByte(said, '\n')+1:])
	}
	return strings.TrimSpace(out.String()), nil
}

// Up starts the services of a backend. When all services are healthy, it returns their addresses,
// each a host:port. compose.yaml reads a service's port from LOCKBENCH_<SERVICE>_PORT. If durable
// is true, each service that can keep its data over a crash does so. Up must be called only once
// for each service.
func (c *Compose) Up(ctx context.Context, backend string, services []string, durable bool) ([]string, error) {
	if len(services) == 0 {
		return nil, fmt.Errorf("%w: compose.yaml has no service for %s", errNoCompose, backend)
	}
	ctx, cancel := context.WithTimeout(ctx, composeTimeout)
	defer cancel()
	taken, err := ports.Take(len(services))
	if err != nil {
		return nil, err
	}
	c.taken = append(c.taken, taken)
	environ := os.Environ()
	if durable {
		environ = append(environ, "LOCKBENCH_REDIS_APPENDONLY=yes")
	}
	var at []string
	for i, s := range services {
		environ = append(environ, fmt.Sprintf("LOCKBENCH_%s_PORT=%d", strings.ToUpper(s), taken.Port(i)))
		at = append(at, taken.Addr(i))
	}
	args := []string{"compose", "--project-name", c.project, "--file", c.file, "up", "--detach", "--wait", "--quiet-pull"}
	if _, err := docker(ctx, environ, append(args, services...)...); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errNoCompose, backend, err)
	}
	return at, nil
}

// Close removes all containers, networks and volumes of the project.
func (c *Compose) Close() error {
	err := c.watch.close()
	if err != nil {
		err = fmt.Errorf("servers: remove the project %s: %w", c.project, err)
	}
	for _, taken := range c.taken {
		err = errors.Join(err, taken.Close())
	}
	return err
}
