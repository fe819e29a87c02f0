// Package servers starts, breaks, and asks the servers that backends are
// measured and tested against. What is of one product only is in a package below
// it, and package kinds lists those.
//
// A local server is a child process on a free loopback port with a temporary
// directory. Closing it removes both. So does the end of the process that
// owns it, whatever that end is: each server, and each project of containers,
// has a watcher, a small child that sees its pipe to the owner close. Test files
// of any package may use this package; a server that is not installed is an
// error wrapping [ErrNotInstalled].
package servers
