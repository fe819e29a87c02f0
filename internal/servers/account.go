package servers

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
)

// The account of the hosts, which may do less than the one that servers begin with.
const (
	HostUser      = "recorder"
	HostPassword  = "recorder-password"
	OtherPassword = "another-password"
)

// Account says how hosts log in, by the keys that their plugin takes: with a file
// that has the password, which is removed with the environment, or with the
// password itself. A plugin without users logs in as everybody.
func (e *Environment) Account(ctx context.Context, w Requirements) error {
	said, _ := exec.CommandContext(ctx, w.Plugin, "describe").Output() // what cannot be run is found when it is opened
	takes := func(key string) bool { return bytes.Contains(said, []byte("\n"+key+" ")) }
	e.User = anybody
	if takes("username") {
		e.User, e.Config["username"], e.Config["password"] = HostUser, HostUser, HostPassword
	}
	if !takes("password_file") {
		return nil
	}
	f, err := os.CreateTemp(w.Dir, "password-")
	if err != nil {
		return err
	}
	delete(e.Config, "password")
	e.PasswordFile, e.Config["password_file"] = f.Name(), f.Name()
	e.AtEnd(func() error { return os.Remove(f.Name()) })
	return errors.Join(f.Close(), e.WritePassword(HostPassword))
}

// anybody is the user that needs no password, where there is one.
const anybody = "default"

// errNoPasswordFile is of a plugin that is older than the file.
var errNoPasswordFile = errors.New("servers: the plugin reads no file with a password")

// WritePassword replaces the file, such that nobody reads half of it.
func (e *Environment) WritePassword(password string) error {
	if e.PasswordFile == "" {
		return errNoPasswordFile
	}
	fresh := e.PasswordFile + ".new"
	if err := os.WriteFile(fresh, []byte(password+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, e.PasswordFile)
}
