package mysql

import "sync"

// rowsKept is after how many names the older ones are forgotten.
const rowsKept = 4096

// rows remembers locks that were granted, whose rows are therefore there. It is a
// guess that chooses the statement: a wrong one costs a second statement, and
// nothing else.
type rows struct {
	mu            sync.Mutex
	recent, older map[string]struct{}
}

func (r *rows) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.recent[name]; ok {
		return true
	}
	_, ok := r.older[name]
	return ok
}

func (r *rows) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recent == nil || len(r.recent) >= rowsKept {
		r.recent, r.older = map[string]struct{}{}, r.recent
	}
	r.recent[name] = struct{}{}
}
