package kit

import (
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

func TestFeeds(t *testing.T) {
	var fs Feeds
	if fs.Watched() {
		t.Error("watched by nobody")
	}
	fs.Announce(driver.Notice{Token: 1}) // there is no watcher yet
	first := fs.Open()
	fs.Announce(driver.Notice{Token: 2})
	second := fs.Open()
	fs.Announce(driver.Notice{Token: 3})
	want := func(f *Feed, tokens ...uint64) {
		t.Helper()
		select {
		case <-f.More():
		default:
			t.Error("there is more, and More is not filled")
		}
		got := f.Take()
		if len(got) != len(tokens) {
			t.Fatalf("took %v, want %v", got, tokens)
		}
		for i := range got {
			if got[i].Token != tokens[i] {
				t.Errorf("took %v, want %v", got, tokens)
			}
		}
		if len(f.Take()) > 0 {
			t.Error("taken twice")
		}
	}
	want(first, 2, 3)
	want(second, 3)
	second.Close()
	fs.Announce(driver.Notice{Token: 4})
	want(first, 4)
	if got := second.Take(); len(got) > 0 || !fs.Watched() {
		t.Errorf("after Close: %v", got)
	}
	first.Close()
	if fs.Watched() {
		t.Error("watched by nobody any more")
	}
}
