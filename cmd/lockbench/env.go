package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

func envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "See which servers there are to measure with, and keep them up between runs",
		Long: `env keeps throwaway servers up between runs, which start faster with them and
measure warm servers. lockbench run uses them when they are up, and its result
says so. They end with lockbench env down, or with the process that keeps them.
They are listed in $LOCKBENCH_STATE, else in lockbench/env.json in your cache
directory.`,
		Example: `  lockbench env doctor
  lockbench env up
  lockbench run --quick
  lockbench env down`,
	}
	cmd.AddCommand(envUpCommand(), envKeepCommand(), envDownCommand(), envStatusCommand(), envDoctorCommand())
	return cmd
}

func keptFlags(fl *pflag.FlagSet, p *bench.Plan) {
	choiceVar(fl, &p.Env, "env", bench.EnvLocal, "where the servers run, `local|compose`", bench.Environments()...)
	fl.StringSliceVar(&p.Backends, "backends", nil, "backends whose servers are meant, a `LIST` (default: all that can be)")
	pluginDirVar(fl, &p.PluginDirs)
}

func envUpCommand() *cobra.Command {
	var p bench.Plan
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start servers and keep them",
		Example: `  lockbench env up
  lockbench env up --env compose --backends redis,etcd`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := newProgress(cmd.ErrOrStderr(), "starting servers")
			shown, err := up(cmd.Context(), p, cmd.ErrOrStderr())
			progress.End()
			fmt.Fprint(cmd.OutOrStdout(), shown)
			return err
		},
	}
	keptFlags(cmd.Flags(), &p)
	return cmd
}

// The up function starts a process that keeps servers running after this process ends. It returns
// the text that the new process printed. If that process fails, up writes the reason to stderr.
func up(ctx context.Context, p bench.Plan, stderr io.Writer) (shown string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	args := []string{"env", "keep", "--env", p.Env, "--backends", strings.Join(p.Backends, ",")}
	for _, dir := range p.PluginDirs {
		args = append(args, "--plugin-dir", dir)
	}
	var said bytes.Buffer
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the process outlives our terminal
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if err := json.NewDecoder(out).Decode(&shown); err == nil {
		return shown, cmd.Process.Release()
	}
	var ended *exec.ExitError
	err = cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return "", bench.ErrInterrupted
	case !errors.As(err, &ended) || !ended.Exited():
		return "", fmt.Errorf("the process that keeps the servers has ended: %v", err)
	}
	_, err = said.WriteTo(stderr)
	return "", errors.Join(err, bench.StatusError(ended.ExitCode()))
}

// envKeepCommand returns the hidden command that "env up" runs in a new process to keep servers.
func envKeepCommand() *cobra.Command {
	var p bench.Plan
	cmd := &cobra.Command{
		Use:    "keep",
		Short:  "Keep servers in this process, until it is ended by SIGTERM",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Keep(cmd.Context(), p, func(shown string) {
				_ = json.NewEncoder(cmd.OutOrStdout()).Encode(shown) // the process that waits for the answer may have ended
			})
		},
	}
	keptFlags(cmd.Flags(), &p)
	return cmd
}

func envDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "down",
		Short:   "End the servers that are kept",
		Example: "  lockbench env down",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return bench.Drop(cmd.Context()) },
	}
}

func envStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "Show the servers that are kept",
		Example: "  lockbench env status",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shown, err := bench.KeptServers()
			return errors.Join(show(shown, "text", cmd), err)
		},
	}
}

func envDoctorCommand() *cobra.Command {
	var dirs []string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which plugins, servers and tools are found, and what to do about the others",
		Long: `doctor starts no server. It looks for plugins as a run does, asks each what it
is, and looks for the programs that local servers and containers are made of.
What is missing costs the backends that need it, nothing else; it exits with 3
when there is no plugin that can be used.`,
		Example: `  lockbench env doctor
  lockbench env doctor --plugin-dir ./bin --format json`,
		Args: noArgs,
	}
	pluginDirVar(cmd.Flags(), &dirs)
	return showing(cmd, func(cmd *cobra.Command, _ []string) (*bench.Outcome, error) {
		return bench.Examine(cmd.Context(), dirs)
	})
}
