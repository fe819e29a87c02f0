package measure

import (
	"os"
	"runtime"
	"testing"
)

func TestProcessorTime(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("none can be read")
	}
	before, err := processorTime(os.Getpid())
	for after := before; after == before && err == nil; {
		after, err = processorTime(os.Getpid()) // until this has used a tick
	}
	if err != nil {
		t.Error(err)
	}
	if _, err := processorTime(-1); err == nil {
		t.Error("of a process that is not there: no error")
	}
}
