package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
	"github.com/lockbench/lockbench/internal/address"
	"github.com/lockbench/lockbench/internal/servers/kinds"
)

// stateVar adds the flag that names the file of kept servers to fl.
func stateVar(fl *pflag.FlagSet, file *string) {
	fl.StringVar(file, "state", "", "`FILE` of kept servers (default $LOCKBENCH_STATE, else lockbench/env.json in your cache directory)")
}

func envCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "env",
		Short: "See which servers there are to measure with, and keep them up between runs",
		Long: `env keeps throwaway servers up between runs, which start faster with them and
measure warm servers. lockbench run uses them when they are up, and its result
says so. They end with lockbench env down, or with the process that keeps them.`,
		Example: `  lockbench env doctor
  lockbench env up
  lockbench run --quick
  lockbench env down`,
	}
	cmd.AddCommand(envUpCommand(), envKeepCommand(), envDownCommand(), envStatusCommand(), envDoctorCommand())
	return cmd
}

// envFlags are those of "env up".
type envFlags struct {
	state, env string
	backends   []string
	pluginDirs []string
}

func (f *envFlags) add(fl *pflag.FlagSet) {
	stateVar(fl, &f.state)
	choiceVar(fl, &f.env, "env", bench.EnvLocal, "where the servers run, `local|compose`", bench.Environments()...)
	fl.StringSliceVar(&f.backends, "backends", nil, "backends whose servers are meant, a `LIST` (default: all that can be)")
	pluginDirVar(fl, &f.pluginDirs)
}

func envUpCommand() *cobra.Command {
	var f envFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start servers and keep them",
		Example: `  lockbench env up
  lockbench env up --env compose --backends redis,etcd`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			progress := newProgress(cmd.ErrOrStderr(), "starting servers")
			defer progress.End()
			return f.up(cmd.Context(), progress.above(cmd.OutOrStdout()))
		},
	}
	f.add(cmd.Flags())
	return cmd
}

// outcome is the one line that the keeping process writes; without servers it is
// an error.
type outcome struct {
	Kept    *bench.Kept `json:"kept,omitempty"`
	Failure string      `json:"error,omitempty"`
	Hint    string      `json:"hint,omitempty"`
	Code    int         `json:"code,omitempty"` // exit code
}

func (o *outcome) Error() string { return o.Failure }

// up starts a process that keeps the servers and outlives this one.
func (f *envFlags) up(ctx context.Context, stdout io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"env", "keep", "--state", f.state, "--env", f.env, "--backends", strings.Join(f.backends, ",")}
	for _, dir := range f.pluginDirs {
		args = append(args, "--plugin-dir", dir)
	}
	cmd := exec.Command(self, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives our terminal
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var o outcome
	if err := json.NewDecoder(out).Decode(&o); err != nil {
		return errors.Join(interrupted(ctx, fmt.Errorf("the process that keeps the servers has ended: %w", err)), cmd.Wait())
	}
	if o.Kept == nil {
		_ = cmd.Wait() // how it ended is in the outcome
		return &o
	}
	showKept(*o.Kept, stdout)
	return cmd.Process.Release()
}

// envKeepCommand is the process that keeps servers. It is not for people.
func envKeepCommand() *cobra.Command {
	var f envFlags
	cmd := &cobra.Command{
		Use:    "keep",
		Short:  "Keep servers in this process, until it is ended by SIGTERM",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := json.NewEncoder(cmd.OutOrStdout())
			up := false
			p := bench.Plan{Env: f.env, Backends: f.backends, PluginDirs: f.pluginDirs}
			err := bench.Keep(cmd.Context(), p, f.state, func(k bench.Kept) {
				up = true
				_ = out.Encode(outcome{Kept: &k}) // whoever has asked may have gone
			})
			if err != nil && !up {
				_ = out.Encode(outcome{Failure: err.Error(), Hint: hintOf(err), Code: exitCode(err)})
			}
			return err
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func envDownCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "End the servers that are kept",
		Example: "  lockbench env down",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			return bench.Drop(ctx, state)
		},
	}
	stateVar(cmd.Flags(), &state)
	return cmd
}

func envStatusCommand() *cobra.Command {
	var state string
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the servers that are kept",
		Example: "  lockbench env status",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := bench.ReadKept(state)
			if err != nil {
				return &bench.EnvError{Err: err}
			}
			if k == nil {
				fmt.Fprintln(cmd.OutOrStdout(), "no servers are kept; lockbench env up starts some")
				return nil
			}
			showKept(*k, cmd.OutOrStdout())
			return nil
		},
	}
	stateVar(cmd.Flags(), &state)
	return cmd
}

func showKept(k bench.Kept, w io.Writer) {
	fmt.Fprintf(w, "%s servers, up since %s, kept by process %d\n", k.Env, k.Started.Format("2006-01-02 15:04:05 UTC"), k.Pid)
	for _, name := range slices.Sorted(maps.Keys(k.Servers)) {
		cfg := k.Servers[name]
		fmt.Fprintf(w, "  %-10s%s%s\n", name, address.Show(cfg["address"]), silent(cfg))
	}
	for _, s := range k.Skipped {
		fmt.Fprintf(w, "left out: %s\n", s)
	}
}

// silent says which addresses nobody listens on, "" when all are well.
func silent(cfg map[string]string) string {
	var down []string
	// It only fails for addresses that are not ours.
	_, _ = kinds.Route(cfg, func(address string) (string, error) {
		c, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			down = append(down, address)
			return address, nil
		}
		return address, c.Close()
	})
	if len(down) == 0 {
		return ""
	}
	return "; not there: " + strings.Join(down, ", ")
}
