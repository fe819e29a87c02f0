package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
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

// The looking function makes cmd call the function look with the backend in cmd's first argument.
func looking(cmd *cobra.Command, look func(ctx context.Context, l bench.Locks, args []string) (*bench.Outcome, error)) *cobra.Command {
	var l bench.Locks
	serversVar(cmd.Flags(), &l.Servers)
	cmd.ValidArgsFunction = lockNames(&l.Servers)
	return showing(cmd, func(cmd *cobra.Command, args []string) (*bench.Outcome, error) {
		l.Backend, l.Warn = args[0], cmd.ErrOrStderr()
		return look(cmd.Context(), l, args[1:])
	})
}

func locksListCommand() *cobra.Command {
	return looking(&cobra.Command{
		Use:   "list BACKEND [PREFIX]",
		Short: "List the locks that are held, those whose names start with PREFIX",
		Example: `  lockbench locks list redis --target redis=10.0.0.7:6379
  lockbench locks list mysql jobs/ --target mysql=@/etc/lockbench/mysql --config mysql.prefix=app_`,
		Args: needs(1, 2, "a backend, and takes a prefix"),
	}, func(ctx context.Context, l bench.Locks, prefix []string) (*bench.Outcome, error) {
		return l.List(ctx, strings.Join(prefix, ""))
	})
}

func locksInspectCommand() *cobra.Command {
	return looking(&cobra.Command{
		Use:     "inspect BACKEND NAME",
		Short:   "Show who holds one lock",
		Example: `  lockbench locks inspect etcd jobs/refresh --target etcd=10.0.0.7:2379 --format json`,
		Args:    needs(2, 2, "a backend and the name of a lock"),
	}, func(ctx context.Context, l bench.Locks, name []string) (*bench.Outcome, error) {
		return l.Inspect(ctx, name[0])
	})
}

func locksBreakCommand() *cobra.Command {
	var token uint64
	var yes bool
	cmd := &cobra.Command{
		Use:   "break BACKEND NAME",
		Short: "End a lease by force",
		Long: `break ends the lease of a lock, and lets the next one have it. The holder goes
on until it notices. A resource that checks tokens is safe against that, others
are not: make sure that it is dead, or that its work does no harm.

It compares the token in the store, so that a lease that was granted meanwhile
is not ended. It asks first; where there is no terminal it needs --yes.`,
		Example: `  lockbench locks break redis jobs/refresh --target redis=10.0.0.7:6379
  lockbench locks break redis jobs/refresh --token 1809738798206418944 --yes`,
		Args: needs(2, 2, "a backend and the name of a lock"),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if !yes && !isTerminal(cmd.InOrStdin()) {
				return bench.Hinted(usagef("%s asks before it breaks a lease, and there is no terminal to ask on", cmd.CommandPath()), "--yes breaks it without a question")
			}
			return nil
		},
	}
	cmd.Flags().Uint64Var(&token, "token", 0, "break it only under this token, `N` (default: the one that is shown)")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return looking(cmd, func(ctx context.Context, l bench.Locks, name []string) (*bench.Outcome, error) {
		return l.Break(ctx, name[0], token, func(question string) bool {
			if yes {
				return true
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
			answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n') // the end of input counts as no
			answer = strings.ToLower(strings.TrimSpace(answer))
			return answer == "y" || answer == "yes"
		})
	})
}
