package servers

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// ownerVariable makes the test binary the owner of a server, to be killed.
const ownerVariable = "LOCKBENCH_ENV_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerVariable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	s, err := Launch(context.Background(), sleeper)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid(), s.scratch.watch.cmd.Process.Pid, s.scratch.dir)
	select {}
}

// sleeper is a server that needs nothing installed, and always answers.
var sleeper = Recipe{
	Product: "sleep",
	Prepare: func(string, int, bool) ([]string, error) { return []string{"sleep", "600"}, nil },
	Ready:   func(context.Context, string) error { return nil },
}
