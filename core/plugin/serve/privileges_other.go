//go:build !linux

package serve

// refusePrivileges does nothing: this system knows no such setting.
func refusePrivileges() {}
