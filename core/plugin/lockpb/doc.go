// Package lockpb holds the wire protocol between a host and its plugin: the file lock.proto, for
// authors in other languages, and the code that "make gen" generates from this file. Only
// core/plugin and the packages below it use its types.
package lockpb
