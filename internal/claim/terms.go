package claim

type backend struct {
	name  string
	terms Terms
}

// backends lists the backends with known terms, in the order in which they are
// shown. Each has a file with its terms.
var backends = []backend{{"redis", redis}, {"redlock", redlock}, {"mysql", mysql}, {"postgres", postgres}, {"etcd", etcd}, {"memory", memory}}

// TermsOf returns given unless it is nil, or else the known terms of a backend.
// For an unknown backend these are the zero value.
func TermsOf(backend string, given *Terms) Terms {
	if given != nil {
		return *given
	}
	for _, b := range backends {
		if b.name == backend {
			return b.terms
		}
	}
	return Terms{}
}
