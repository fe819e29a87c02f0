package fault

import (
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

const holeKind = "lockbench-hole"

func init() { toxics.Register(holeKind, new(hole)) }

// hole is a toxic that lets nothing pass, not even that one side has closed its
// connection, as toxiproxy's own does: the death of a machine is not seen.
type hole struct {
	// EndsOnly lets everything else pass.
	EndsOnly bool `json:"ends_only"`

	made   sync.Once
	ended  sync.Once
	filled chan struct{}
}

func (h *hole) end() chan struct{} {
	h.made.Do(func() { h.filled = make(chan struct{}) })
	return h.filled
}

// fill ends the connections of which the hole has swallowed the end.
func (h *hole) fill() { h.ended.Do(func() { close(h.end()) }) }

// Pipe implements toxics.Toxic.
func (h *hole) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil { // closed
				<-h.end()
				stub.Close()
				return
			}
			if h.EndsOnly {
				stub.Output <- chunk
			}
		}
	}
}

// Cleanup implements toxics.CleanupToxic: what was swallowed is missing for
// good, so that the connection ends with the hole.
func (h *hole) Cleanup(stub *toxics.ToxicStub) {
	if !h.EndsOnly {
		stub.Close()
	}
}
