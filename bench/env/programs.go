package env

import (
	"context"
	"errors"
	"os/exec"
	"regexp"
	"time"
)

// Program is a server's program, or a tool, as it was looked for.
type Program struct {
	Name string // "redis-server"
	For  string // what it is needed for
	Path string // "" when Err is not nil
	// Version is what the program says of itself; "" when it says nothing.
	Version string
	// Err says why it cannot be used. A program that is missing is a
	// [*NotInstalledError].
	Err error
}

// versionTimeout bounds the question for a version: a tool may ask a daemon.
const versionTimeout = 5 * time.Second

// Programs looks for all that local servers and containers are made of.
func Programs(ctx context.Context) []Program {
	redis, err := find("redis-server", "redis-server", "redis")
	all := []Program{{Name: "redis-server", For: "redis, redlock", Path: redis, Err: err}}

	database := Program{Name: "mariadbd or mysqld", For: "mysql"}
	if found, err := findMySQL(); err != nil {
		database.Err = err
	} else {
		database.Name, database.Path = string(found.product), found.binary
	}
	etcd, err := etcdBinary("")
	all = append(all, database, Program{Name: "etcd", For: "etcd", Path: etcd, Err: err})

	docker, err := find("docker", "docker.io", "docker")
	all = append(all, Program{Name: "docker", For: "--env compose", Path: docker, Err: err})
	if err == nil {
		all = append(all, Program{Name: "docker compose", For: "--env compose", Path: docker})
	}
	for i := range all {
		all[i].ask(ctx)
	}
	return all
}

// numbered finds a version in what programs print.
var numbered = regexp.MustCompile(`\d+\.\d+[\w.+~-]*`)

// ask fills in the version.
func (p *Program) ask(ctx context.Context) {
	if p.Err != nil {
		return
	}
	args := []string{"--version"}
	if p.Name == "docker compose" {
		args = []string{"compose", "version"}
	}
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Path, args...).CombinedOutput()
	switch {
	case err != nil && p.Name == "docker compose":
		p.Path, p.Err = "", &NotInstalledError{Program: "docker compose", Debian: "docker-compose-v2", Homebrew: "docker-compose"}
	case err != nil:
		p.Path, p.Err = "", errors.Join(errors.New("it does not start"), err)
	default:
		p.Version = string(numbered.Find(out))
	}
}
