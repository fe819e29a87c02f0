package main

import (
	"math"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockbench/lockbench/bench"
)

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
