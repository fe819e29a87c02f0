package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/core"
	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

func locksCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "locks",
		Short: "See who holds which lock, and end a lease by force",
		Long: `locks is for operators: it asks a store, through its plugin, who holds what. Say
with --target where the store is, and with --config what else the applications
are configured with, their prefix above all: another prefix has other locks.`,
		Example: `  lockbench locks list redis --target redis=10.0.0.7:6379
  lockbench locks inspect redis jobs/refresh --target redis=env:REDIS_URL
  lockbench locks break redis jobs/refresh --token 1809738798206418944`,
	}
	cmd.AddCommand(locksListCommand(), locksInspectCommand(), locksBreakCommand())
	return cmd
}

// locksFlags are those of all commands of locks.
type locksFlags struct {
	servers serverFlags
	format  string
	timed   bool // tokens are times, by the plugin's own claim
	// foreign says how to remove a lock that no client of ours holds, "" when that
	// is not known.
	foreign func(name string) string
}

// work is what a command does with the client of the backend that it names, and
// with its further arguments.
type work func(ctx context.Context, c *core.Client, args []string) error

// command lets cmd, whose first argument is a backend, do its work.
func (f *locksFlags) command(cmd *cobra.Command, do work) *cobra.Command {
	choiceVar(cmd.Flags(), &f.format, "format", "text", "output: text or json", "text", "json")
	f.servers.add(cmd.Flags())
	cmd.ValidArgsFunction = firstBackend(cobra.ShellCompDirectiveNoFileComp)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return f.with(cmd, args, do)
	}
	return cmd
}

// locksTimeout bounds how long a store may be asked.
const locksTimeout = 30 * time.Second

// with opens the backend, checks that its store answers, and does the work. One that
// refuses locks for its settings may still show who holds those that there are.
func (f *locksFlags) with(cmd *cobra.Command, args []string, do work) (err error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), locksTimeout)
	defer cancel()
	found, d, cfg, err := f.servers.resolved(ctx, args[0], cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if d.Properties.Scope == driver.ScopeHost {
		return usagef("the locks of %s live in its plugin: nobody outside of the host process sees them", found.Name)
	}
	log := slog.New(slog.DiscardHandler)
	f.timed = d.Properties.TimedTokens
	f.foreign = func(name string) string {
		if foreign := kinds.Of(found.Name).Foreign; foreign != nil {
			return foreign(cfg["prefix"], name)
		}
		return ""
	}
	b, err := plugin.Open(ctx, found.Name, &plugin.Options{Config: cfg, Path: found.Path, StartTimeout: locksTimeout, Logger: log})
	if err != nil {
		return &bench.EnvError{Backend: found.Name, Err: err}
	}
	c := core.New(b, &core.Options{Logger: log})
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()
	if err := b.Check(ctx); errors.Is(err, driver.ErrUnavailable) {
		return &bench.EnvError{Backend: found.Name, Err: err, Hint: fmt.Sprintf("--target %s=ADDRESS says where the store is", found.Name)}
	}
	err = do(ctx, c, args[1:])
	if errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrDenied) {
		return &bench.EnvError{Backend: found.Name, Err: err}
	}
	return err
}

// twoArgs demands a backend and a lock.
func twoArgs(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return hinted(usagef("%s needs a backend and the name of a lock, not %d arguments", cmd.CommandPath(), len(args)), cmd.UseLine())
	}
	return nil
}

func locksInspectCommand() *cobra.Command {
	var f locksFlags
	cmd := &cobra.Command{
		Use:     "inspect BACKEND NAME",
		Short:   "Show who holds one lock",
		Example: `  lockbench locks inspect etcd jobs/refresh --target etcd=10.0.0.7:2379 --format json`,
		Args:    twoArgs,
	}
	return f.command(cmd, func(ctx context.Context, c *core.Client, args []string) error {
		h, err := c.Inspect(ctx, args[0])
		if err != nil {
			return err
		}
		return f.showHolder(cmd.OutOrStdout(), args[0], h)
	})
}

func locksBreakCommand() *cobra.Command {
	var f locksFlags
	var token uint64
	var yes bool
	cmd := &cobra.Command{
		Use:   "break BACKEND NAME",
		Short: "End a lease by force",
		Long: `break ends the lease of a lock, and lets the next one have it. The holder goes
on until it notices, which a resource that checks tokens is safe against, and
others are not: make sure that it is dead, or that its work does no harm.

It compares the token in the store, so that a lease that was granted meanwhile
is not ended. It asks first; where there is no terminal it needs --yes.`,
		Example: `  lockbench locks break redis jobs/refresh --target redis=10.0.0.7:6379
  lockbench locks break redis jobs/refresh --token 1809738798206418944 --yes`,
		Args: twoArgs,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !isTerminal(cmd.InOrStdin()) {
				return hinted(usagef("%s asks before it breaks a lease, and there is no terminal to ask on", cmd.CommandPath()), "--yes breaks it without a question")
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&token, "token", 0, "break it only under this token, `N` (default: the one that is shown)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return f.command(cmd, func(ctx context.Context, c *core.Client, args []string) error {
		return f.breakLease(ctx, cmd, c, args[0], token, yes)
	})
}

// breakLease ends the lease of name under token, or under the one that it has
// now.
func (f *locksFlags) breakLease(ctx context.Context, cmd *cobra.Command, c *core.Client, name string, token uint64, yes bool) error {
	h, err := c.Inspect(ctx, name)
	switch {
	case err != nil:
		return err
	case !h.Held():
		return fmt.Errorf("nobody holds %q", name)
	case token != 0 && core.GrantNumber(h.Token) != core.GrantNumber(token):
		return fmt.Errorf("%q is held under token %d, not %d: that lease is over", name, h.Token, token)
	case h.Token == 0:
		return hinted(fmt.Errorf("%q is held by %s, which has no token to compare", name, holderOf(h)), f.foreign(name))
	}
	if !yes {
		fmt.Fprintf(cmd.ErrOrStderr(), "%q is held by %s under token %d, for another %v.\nBreak it? Its holder goes on until it notices. [y/N] ", name, holderOf(h), h.Token, left(h))
		answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // an end is a no
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			return errors.New("not broken")
		}
	}
	// The answer may have taken any time; the store compares the token again.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), locksTimeout)
	defer cancel()
	if err := c.Break(ctx, name, h.Token); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "broke the lease of %q under token %d, held by %s\n", name, h.Token, holderOf(h))
	return nil
}

// holderOf says who holds a lock, for people.
func holderOf(h driver.Holder) string {
	switch {
	case h.Label != "":
		return printable(h.Label)
	case h.Token == 0 && h.Owner != "":
		return "a foreign client, " + printable(h.Owner)
	}
	return "owner " + printable(h.Owner)
}

// left is what remains of a lease, as text.
func left(h driver.Holder) string {
	if h.TTL < 0 {
		return "no end"
	}
	return h.TTL.Round(time.Millisecond).String()
}

// printable quotes what a terminal could take for a command.
func printable(s string) string {
	if quoted := strconv.Quote(s); quoted != `"`+s+`"` || s == "" {
		return quoted
	}
	return s
}

func waiters(h driver.Holder) string {
	if h.Waiters < 0 {
		return "unknown"
	}
	return strconv.Itoa(h.Waiters)
}

// since is when the lease was granted, by the store's clock; ok is false when
// its token does not say.
func (f *locksFlags) since(h driver.Holder) (at time.Time, ok bool) {
	if !f.timed || h.Token == 0 {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(core.GrantNumber(h.Token))).UTC(), true
}

func (f *locksFlags) sinceText(h driver.Holder) string {
	if at, ok := f.since(h); ok {
		return at.Format("2006-01-02 15:04:05Z")
	}
	return "unknown"
}

func (f *locksFlags) showHolder(w io.Writer, name string, h driver.Holder) error {
	if f.format == "json" {
		return writeJSON(w, f.document(name, h))
	}
	if !h.Held() {
		fmt.Fprintf(w, "nobody holds %s; %s wait\n", printable(name), waiters(h))
		return nil
	}
	for _, line := range [][2]string{
		{"lock", printable(name)}, {"holder", holderOf(h)}, {"since", f.sinceText(h)}, {"owner", printable(h.Owner)}, {"token", strconv.FormatUint(h.Token, 10)},
		{"TTL left", left(h)}, {"waiters", waiters(h)}, {"value", printable(string(h.Value))},
	} {
		fmt.Fprintf(w, "%-9s %s\n", line[0], line[1])
	}
	return nil
}
