//go:build !linux

package serve

// refusePrivileges does nothing, because this system has no such setting.
func refusePrivileges() {}
