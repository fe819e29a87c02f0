// Package lockpb holds the wire protocol between a host and its plugin. This
// is lock.proto, for authors in other languages, and the code that "make gen"
// generates from it. Only core/plugin and the packages below it use its types.
package lockpb
