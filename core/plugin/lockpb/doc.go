// Package lockpb holds the protocol between a host and its plugin. The file lock.proto specifies
// it for authors in any language. The Go code is generated from lock.proto by "make gen".
// Only core/plugin and the packages below it use this code.
package lockpb
