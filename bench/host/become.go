package host

import (
	"fmt"
	"io"
	"os"
)

// Become makes this process what run is, and ends it, when it was started with
// the environment variable set; otherwise it does nothing. The process is told
// what to do on its standard input, and answers on its standard output. Its
// error is written after what it is called.
func Become(variable, called string, run func(io.Reader, io.Writer) error) {
	if os.Getenv(variable) == "" {
		return
	}
	os.Unsetenv(variable) // what we start is none
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, called+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}
