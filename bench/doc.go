// Package bench plans a run and carries it out: servers, plugins, scenarios,
// one result folder.
package bench
