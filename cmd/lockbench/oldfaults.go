package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// oldFlags adds old flags of "lockbench run", which lockbench accepts for one more release.
func oldFlags(fl *pflag.FlagSet) {
	fl.StringSlice("faults", nil, "")
	fl.StringSlice("actions", nil, "")
	fl.Bool("keep-going", false, "")
	fl.String("reproducer", "", "")
	fl.String("recorder", "", "")
	for _, name := range []string{"faults", "actions", "keep-going", "reproducer", "recorder"} {
		fl.Lookup(name).Hidden = true
	}
}

var newNames = map[string]string{"reproducer": "replay", "recorder": "host-program"}

// faultsArgs returns arguments for "lockbench faults" that do the same as an old command line of
// "lockbench run". The result old is false if the command line does not have the old form.
func faultsArgs(cmd *cobra.Command) (args []string, old bool) {
	fl := cmd.Flags()
	scenarios, _ := fl.GetStringSlice("scenarios") // the flag has this type
	searches := slices.Equal(scenarios, []string{"explore"})
	old = searches || slices.Equal(scenarios, []string{"safety"})
	if searches && !fl.Changed("reproducer") {
		length := 10 * time.Minute
		if fl.Changed("for") {
			length, _ = fl.GetDuration("for") // the flag has this type
		}
		args = append(args, "--search="+length.String())
	}
	fl.Visit(func(f *pflag.Flag) {
		old = old || f.Hidden
		name := cmp.Or(newNames[f.Name], f.Name)
		switch list, ok := f.Value.(pflag.SliceValue); {
		case name == "scenarios" || name == "for":
		case ok:
			for _, value := range list.GetSlice() {
				args = append(args, "--"+name+"="+value)
			}
		default:
			args = append(args, "--"+name+"="+f.Value.String())
		}
	})
	return args, old
}

func runFaults(cmd *cobra.Command, args []string) error {
	say := "lockbench faults"
	for _, mode := range []string{"--search=", "--replay="} {
		if i := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, mode) }); i >= 0 {
			say += " " + args[i]
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "lockbench run measures only, from the next release on: say %s\n", say)
	root := cmd.Root()
	root.SetArgs(append([]string{"faults"}, args...))
	return root.ExecuteContext(cmd.Context())
}
