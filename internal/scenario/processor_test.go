package scenario

import (
	"errors"
	"os"
	"testing"
)

func TestProcessorTime(t *testing.T) {
	before, err := processorTime(os.Getpid())
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	for after := before; after == before && err == nil; {
		after, err = processorTime(os.Getpid()) // until this has used a tick
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := processorTime(os.Getpid(), -1); err == nil {
		t.Error("of a process that is not there: no error")
	}
}
