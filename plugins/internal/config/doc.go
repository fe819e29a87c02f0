// Package config is how a backend is configured: one struct with tags is its
// keys, their defaults and their documentation, and the options of its
// library. What every backend needs, [Connect], is one struct for all of them,
// so that a key means the same everywhere.
//
// Certificates, authorities and passwords that stand in files are read again
// for each connection ([Source]): they are renewed more often than the
// processes that use them.
package config
