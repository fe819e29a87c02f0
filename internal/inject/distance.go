package inject

import "time"

// SetDistance delays all data by half of rtt in each direction, as if the
// server were far away. Heal does not end this delay; only SetDistance(0) does.
func (p *Proxy) SetDistance(rtt time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.far = rtt / 2
	p.tell()
}

func (p *Proxy) distance() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.far
}
