package main

import (
	"regexp"
	"strings"
)

// resumeCommand is the command that goes on with the run of a folder that was
// begun with f. Targets are safe to show as they were typed, because those with
// a password are refused. Values of --config are not: any of them may be one.
func (f *runFlags) resumeCommand(dir string) string {
	line := "lockbench run --resume " + shellWord(dir)
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				line += " --" + flag + " " + shellWord(v)
			}
		}
	}
	add("plugin-dir", f.servers.pluginDirs...)
	add("target", f.servers.targets...)
	add("vs", f.given.VS)
	add("state", f.given.State)
	if len(f.servers.config) > 0 {
		line += ", with the same --config,"
	}
	return line
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord is s as one word for a POSIX shell.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
