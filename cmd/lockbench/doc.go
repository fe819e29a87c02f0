// Command lockbench measures distributed locks, checks their safety in the
// same run, and tests plugins for conformance.
package main
