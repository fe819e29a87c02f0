package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
)

// The account of the hosts, which may do less than the one of package env.
const (
	hostUser      = "recorder"
	hostPassword  = "recorder-password"
	otherPassword = "another-password"
)

// account says how hosts log in, by the keys that their plugin takes: with a file
// that has the password, which is removed with the environment, or with the
// password itself. A plugin without users logs in as everybody.
func (e *Environment) account(ctx context.Context, w Requirements) error {
	said, _ := exec.CommandContext(ctx, w.Plugin, "describe").Output() // what cannot be run is found when it is opened
	takes := func(key string) bool { return bytes.Contains(said, []byte("\n"+key+" ")) }
	e.user = anybody
	if takes("username") {
		e.user, e.Config["username"], e.Config["password"] = hostUser, hostUser, hostPassword
	}
	if !takes("password_file") {
		return nil
	}
	f, err := os.CreateTemp(w.Dir, "password-")
	if err != nil {
		return err
	}
	delete(e.Config, "password")
	e.passwordFile, e.Config["password_file"] = f.Name(), f.Name()
	e.end = append(e.end, func() error { return os.Remove(f.Name()) })
	return errors.Join(f.Close(), e.writePassword(hostPassword))
}

// anybody is the user that needs no password, where there is one.
const anybody = "default"

// errNoPasswordFile is of a plugin that is older than the file.
var errNoPasswordFile = errors.New("store: the plugin reads no file with a password")

// writePassword replaces the file, such that nobody reads half of it.
func (e *Environment) writePassword(password string) error {
	if e.passwordFile == "" {
		return errNoPasswordFile
	}
	fresh := e.passwordFile + ".new"
	if err := os.WriteFile(fresh, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, e.passwordFile)
}
