// Package lockpb holds the wire protocol between a host and its plugin:
// lock.proto, which authors in other languages read, and the code generated from
// it by "make gen". Only core/plugin and the packages below it use its types.
package lockpb
