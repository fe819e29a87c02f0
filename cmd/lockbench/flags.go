package main

import (
	"errors"
	"slices"

	"github.com/spf13/pflag"
)

// choice is the value of a flag that takes one of a few words.
type choice struct {
	word  *string
	usual string // may be none of the words
	words []string
}

// choiceVar adds a flag that takes one of words to fl.
func choiceVar(fl *pflag.FlagSet, word *string, name, usual, usage string, words ...string) {
	*word = usual
	fl.Var(&choice{word, usual, words}, name, usage)
}

// Set implements pflag.Value.
func (c *choice) Set(word string) error {
	if word != c.usual && !slices.Contains(c.words, word) {
		return errors.New("unknown") // flagError says what there is
	}
	*c.word = word
	return nil
}

// String implements pflag.Value.
func (c *choice) String() string { return *c.word }

// Type implements pflag.Value: help shows it as it shows other words.
func (c *choice) Type() string { return "string" }
