package faults

import (
	"context"
	"sync"
	"time"

	"github.com/lockbench/lockbench/internal/proc"
	"github.com/lockbench/lockbench/internal/servers"
)

// The actions of schedules that are written by hand, of which none does harm.
const (
	Ask      = "ask"
	GiveBack = "give-back"
	Wait     = "wait"
)

// tableActions are known, and not drawn.
var tableActions = []Action{
	{Name: Ask, Does: "%s asks for its locks", On: OnHost, Inject: ofHost((*System).ask)},
	{Name: GiveBack, Does: "%s gives its locks back", On: OnHost, Inject: ofHost((*System).giveBack)},
	{Name: Wait, Does: "time passes", On: OnStore, Inject: func(context.Context, *System, Event) error { return nil }},
}

// allTableActions are [tableActions], and what is staged on servers, of which one
// happens while another one lasts.
var allTableActions = sync.OnceValue(func() []Action {
	all := operations(func(k *servers.Kind) []servers.Operation { return k.Staged })
	for i := range all {
		all[i].Uses = ""
	}
	return append(all, tableActions...)
})

// ask has a host ask for every lock of the groups that ask once.
func (w *System) ask(h *Host, e Event) error {
	first, count := w.history.once(e.Group)
	h.askedAt.Store(proc.Now())
	h.asked.Store(int64(count))
	return h.Acquire(w.history.prefix, first, count, time.Duration(w.history.Schedule.Groups[max(0, e.Group-1)].TTL), time.Duration(e.Limit))
}

func (w *System) giveBack(h *Host, e Event) error {
	ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
	defer cancel()
	first, _ := w.history.once(e.Group)
	return h.ReleaseFrom(ctx, first)
}
