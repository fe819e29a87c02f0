// Package lockpb holds the wire protocol between a host and its plugin:
// lock.proto, which authors in other languages read, and the code generated
// from it by "make gen". Its types never leave core/plugin and its children.
package lockpb
