package main

import (
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

func lockCommand() *cobra.Command {
	var l bench.Locked
	cmd := running(&cobra.Command{
		Use:   "lock BACKEND NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `lock waits for a lock, runs a command, and gives the lock back when the command
and all that it has started have ended. It prints only errors, and ends
with the command's status: 128 + n when signal n ended it, 126 or 127 when it
cannot be run. Its own are 75 when the lock is held, 79 when it was lost and the
command ended for that, 2 and 3 as for all commands.

With --tick 1m, which suits every crontab, the command runs once in each minute
for which some machine asks, whatever pauses or dies: 75 says that another
machine has that minute, or that it is over. It waits for the run before, as
long as the minute lasts. Take --tick 1h if a machine may begin minutes after
the others. Longer ticks are due in their first hour only, in UTC.

The command has LOCKBENCH_LOCK, LOCKBENCH_TOKEN (higher with every grant: let
what it writes to refuse lower ones) and LOCKBENCH_LEASE_UNTIL, the end of the
lease unless it is renewed, which it is while the command runs; with --tick also
LOCKBENCH_TICK, the time for which it runs.`,
		Example: `  lockbench lock redis nightly --tick 1m --target redis=10.0.0.7:6379 -- ./report
  lockbench lock etcd jobs/refresh --wait 30s --target etcd=@/etc/lockbench/etcd -- make refresh
  lockbench lock mysql backup --try --target mysql=env:DSN -- ./backup`,
	}, &l)
	fl := cmd.Flags()
	fl.BoolVar(&l.Try, "try", false, "do not wait when the lock is held")
	fl.DurationVar(&l.Wait, "wait", 0, "wait at most for this `time`; 0 is --try (default: without an end)")
	fl.DurationVar(&l.AtLeast, "at-least", 0, "keep the lock for this `time`, also when the command ends sooner")
	fl.DurationVar(&l.Tick, "tick", 0, "run once over all machines in each multiple of this `time`")
	fl.IntVar(&l.Held, "conflict-exit-code", bench.StatusHeld, "end with this `status` when the lock is held")
	return cmd
}

func leadCommand() *cobra.Command {
	var l bench.Locked
	l.Lead = true
	cmd := running(&cobra.Command{
		Use:   "lead BACKEND NAME [flags] -- COMMAND [ARG...]",
		Short: "Run a command while leading an election",
		Long: `lead campaigns, runs a command while it leads, and ends with the command's
status as lock does. When the leadership is lost the command is ended, and it
campaigns again. With --restart it does so when the command has ended, too:
after SIGTERM, SIGINT, SIGHUP or SIGQUIT it stays no longer than the command.

An election and a lock of one name are the same lock.`,
		Example: `  lockbench lead etcd scheduler --target etcd=10.0.0.7:2379 -- ./scheduler
  lockbench lead redis worker --restart --target redis=env:REDIS_URL -- ./worker`,
	}, &l)
	cmd.Flags().BoolVar(&l.Restart, "restart", false, "run the command again when it has ended, after the next term has begun")
	return cmd
}

// The running function makes cmd hold the lock in l and run the user's command, which follows "--".
func running(cmd *cobra.Command, l *bench.Locked) *cobra.Command {
	fl := cmd.Flags()
	fl.DurationVar(&l.TTL, "ttl", 0, "how long others wait when this machine is lost, a `time` (default 10s)")
	fl.DurationVar(&l.MaxHold, "max-hold", 0, "end the command after this `time`, by SIGTERM, and by SIGKILL 10s later")
	fl.StringVar(&l.Label, "label", "", "who holds the lock, for people (default: host name and process id)")
	fl.BoolVarP(&l.Verbose, "verbose", "v", false, "report waiting, renewals and the end of the lease")
	serversVar(fl, &l.Servers)
	cmd.ValidArgsFunction = lockNames(&l.Servers)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() != 2 || len(args) < 3 {
			return bench.Hinted(usagef("%s needs a backend, the name of a lock, and behind -- a command", cmd.CommandPath()), cmd.UseLine())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for name, d := range map[string]time.Duration{"wait": l.Wait, "ttl": l.TTL, "at-least": l.AtLeast, "max-hold": l.MaxHold, "tick": l.Tick} {
			if cmd.Flags().Changed(name) && (d < 0 || d == 0 && name != "wait" || d < time.Second && name == "tick") {
				return usagef("--%s %v is too short", name, d)
			}
		}
		for _, two := range [][2]string{{"try", "wait"}, {"tick", "try"}, {"tick", "at-least"}} {
			if cmd.Flags().Changed(two[0]) && cmd.Flags().Changed(two[1]) {
				return usagef("--%s and --%s are two things to do: choose one", two[0], two[1])
			}
		}
		l.Try = l.Try || cmd.Flags().Changed("wait") && l.Wait == 0
		if l.Held < 0 || l.Held > 255 {
			return usagef("--conflict-exit-code %d is not 0 to 255", l.Held)
		}
		l.Backend, l.Name, l.Command = args[0], args[1], args[2:]
		l.Tell = isTerminal(cmd.ErrOrStderr())
		return l.Run(cmd.Context(), cmd.ErrOrStderr())
	}
	return cmd
}

func execCommand() *cobra.Command {
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "exec -- PROGRAM [ARG...]",
		Short: "Run a program as the init of a container: plugins outlive it until its locks are free",
		Long: `exec runs a program, hands signals on to it, and reaps what it leaves behind.
When the program has ended, also by SIGKILL, exec stays until the plugins of
that program have released its locks, and ends with the program's status: 128 +
n when signal n ended it, 126 or 127 when it could not be run.

When the first process of a container ends, the kernel kills all others at once.
An application that is the first process itself takes its plugins with it, and
its locks are free only when their TTL is over.`,
		Example: `  lockbench exec -- ./billing --port 8080`,
		Args:    needs(1, math.MaxInt, "a program"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if grace < 0 {
				return usagef("--grace %v is negative", grace)
			}
			return bench.Exec(args, grace, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after PROGRAM belong to PROGRAM
	cmd.Flags().DurationVar(&grace, "grace", 5*time.Second, "longest time to stay when the program has ended")
	return cmd
}
