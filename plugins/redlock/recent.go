package redlock

import "time"

// recent has the texts that were put there a while ago at most, and some that
// are older. It is guarded by whoever has it.
type recent struct {
	until   map[string]time.Time
	sweepAt int // size at which the old ones are dropped
}

// put keeps text for life. It takes constant time on average: it sweeps when
// the size has doubled.
func (m *recent) put(text string, life time.Duration) {
	now := time.Now()
	if m.until == nil {
		m.until = map[string]time.Time{}
	}
	if len(m.until) >= m.sweepAt {
		for t, until := range m.until {
			if now.After(until) {
				delete(m.until, t)
			}
		}
		m.sweepAt = 2*len(m.until) + 1024
	}
	m.until[text] = now.Add(life)
}

// has reports whether text is there, and drops it if it is too old.
func (m *recent) has(text string) bool {
	until, ok := m.until[text]
	if ok && time.Now().After(until) {
		delete(m.until, text)
		return false
	}
	return ok
}

// take removes text, and reports whether it was there.
func (m *recent) take(text string) bool {
	ok := m.has(text)
	delete(m.until, text)
	return ok
}
