package claim

// What the pages are written from.
var (
	Claims     = claims
	Everywhere = everywhere
	Sources    = sources
)
