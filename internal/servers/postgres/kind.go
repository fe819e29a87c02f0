// Package postgres starts PostgreSQL servers, and changes or breaks them as operators do.
package postgres

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/internal/servers"
)

// Kind is one PostgreSQL server.
var Kind = &servers.Kind{
	Name:     "postgres",
	Lacks:    servers.OneSQLServer,
	Settings: []servers.Setting{{Name: servers.Plain, Servers: 1}},
	Synced: []string{"fsync=on", "full_page_writes=on", "synchronous_commit=on", "synchronous_commit=local",
		"synchronous_commit=remote_write", "synchronous_commit=remote_apply"},

	Prepare:    prepare,
	Operations: operations,
	Launch: func(ctx context.Context, _ bool) (servers.Nodes, error) {
		s, err := Start(ctx, nil)
		return servers.Nodes{s}, err
	},
	Services: []string{"postgres"},
	Address:  func(at []string) string { return At(at[0]) },
	HostIn:   regexp.MustCompile(`^postgres(?:ql)?://(?:[^/@]*@)?([^/?,@]+)(?:[/?]|$)`),
	Remove:   remove,
	Program:  server.Program,
}

func prepare(ctx context.Context, e *servers.Environment, w servers.Requirements) error {
	if err := e.Account(ctx, w); err != nil {
		return err
	}
	wrap, err := e.StartClock(ctx, w)
	if err != nil {
		return err
	}
	if a, err := accountOf(); len(wrap) > 0 && err == nil && a != nil {
		// Root owns the files of the clock, but the server runs as another user.
		if err := letIn(a, w.Dir, wrap); err != nil {
			return err
		}
	}
	one, err := Start(ctx, &Options{Wrap: wrap, SQL: plainUser})
	if err != nil {
		return err
	}
	e.Servers = servers.Nodes{one}
	if e.Login = "postgres://" + servers.HostUser; e.PasswordFile == "" {
		e.Login += ":" + servers.HostPassword
	}
	admin, err := open(driver.Config{"address": Address(one)})
	if err == nil {
		e.Product = &store{servers.NewSQL(servers.SQL{Environment: e, Admin: admin, Absent: absent, Ends: []string{"ROLLBACK"}})}
	}
	return err
}

// letIn makes the account the owner of the files that wrap, an "env" command, has in variables. It
// also lets the account enter the directory dir and its parents, but only below os.TempDir.
func letIn(a *account, dir string, wrap []string) error {
	var files []string
	for _, word := range wrap {
		if at := regexp.MustCompile(`^[A-Z_]+=(/.*)$`).FindStringSubmatch(word); at != nil {
			files = append(files, at[1])
		}
	}
	for top := filepath.Clean(os.TempDir()) + "/"; strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
		if err := a.give(dir, files...); err != nil {
			return err
		}
	}
	return nil
}

// plainUser has the statement that makes the hosts' account, which has few rights. It runs at each
// start, even of a read-only server, so it does nothing if the account exists.
var plainUser = []string{"DO $$ BEGIN IF to_regrole('" + servers.HostUser + "') IS NULL THEN" +
	" CREATE ROLE " + servers.HostUser + " LOGIN PASSWORD '" + servers.HostPassword + "';" +
	" GRANT CREATE ON DATABASE " + database + " TO " + servers.HostUser + ";" +
	" END IF; END $$"}
