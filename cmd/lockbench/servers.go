package main

import (
	"github.com/spf13/pflag"

	"github.com/lockbench/lockbench/bench"
)

func serversVar(fl *pflag.FlagSet, s *bench.Servers) {
	fl.StringArrayVar(&s.Targets, "target", nil, "your server: `BACKEND=ADDRESS`, =@FILE or =env:VARIABLE")
	configVar(fl, &s.Config)
	pluginDirVar(fl, &s.PluginDirs)
}

// startedVar adds the flags of commands that start servers and processes that use them.
func startedVar(fl *pflag.FlagSet, s *bench.Servers) {
	fl.StringArrayVar(&s.Commands, "server", nil, "start servers: `BACKEND=COMMAND` {port} {dir}")
	choiceVar(fl, &s.MTLS, "mtls", "on", "mutual TLS between host and plugin, `on|off`", "on", "off")
}

func configVar(fl *pflag.FlagSet, config *[]string) {
	fl.StringArrayVar(config, "config", nil, "configure a backend: `BACKEND.KEY=VALUE` (see plugins describe)")
}

func pluginDirVar(fl *pflag.FlagSet, dirs *[]string) {
	fl.StringArrayVar(dirs, "plugin-dir", nil, "look for plugins in `DIR` first, then beside lockbench and on the PATH")
}
