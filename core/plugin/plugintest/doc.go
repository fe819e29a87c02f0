// Package plugintest runs backends as the conformance suite wants them: behind
// the wire in process, as a real plugin process, and under a second host
// process that can be killed.
package plugintest
