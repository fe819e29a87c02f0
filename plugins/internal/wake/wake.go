// Package wake wakes a goroutine that waits for a channel.
package wake

// Up wakes the one who reads c, which has room for one, or who will read it next.
func Up(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has yet to take the signal before this one
	}
}
