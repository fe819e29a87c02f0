package fence_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/lockbench/lockbench/core/fence"
)

// The holder of token 7 was paused for longer than the TTL, so another holder was granted token 8.
func ExampleGuard() {
	var guard fence.Guard
	stock := 10
	take := func() error { stock--; return nil }

	fmt.Println(guard.Do("stock", 7, take))
	fmt.Println(guard.Do("stock", 8, take))
	fmt.Println(guard.Do("stock", 7, take))
	fmt.Println("left:", stock)
	// Output:
	// <nil>
	// <nil>
	// stale fencing token: "stock" has seen 8 and refuses 7
	// left: 8
}

func ExampleFile() {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	report := fence.File{Path: filepath.Join(dir, "report.txt")}

	fmt.Println(report.Write(8, []byte("new leader")))
	err = report.Write(7, []byte("old leader"))
	fmt.Println(errors.Is(err, fence.ErrStale))
	text, _ := os.ReadFile(report.Path)
	fmt.Println(string(text))
	// Output:
	// <nil>
	// true
	// new leader
}

func ExampleHandler() {
	write := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "written") })
	name := func(r *http.Request) string { return r.URL.Path }
	server := fence.Handler(&fence.Guard{}, name, write)

	for _, token := range []string{"8", "7", ""} {
		r := httptest.NewRequest(http.MethodPut, "/orders/1", nil)
		r.Header.Set(fence.Header, token)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 200
	// 409
	// 400
}

// An UPDATE for Exec must contain the texts that Set and Where return.
func ExampleExec() {
	query := "UPDATE stock SET amount = ?, " + fence.Set("lock_token") +
		" WHERE id = ? AND " + fence.Where("lock_token")
	fmt.Println(query)
	// Output:
	// UPDATE stock SET amount = ?, lock_token = ? WHERE id = ? AND (lock_token <= ?)
}
