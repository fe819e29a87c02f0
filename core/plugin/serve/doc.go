// Package serve turns a backend into a plugin: a main function that calls
// [Main] is all that an author writes. The package gives the process its
// handshake, its protocol, its command line, and its behaviour when the host
// dies: what that host held is released at once.
package serve
