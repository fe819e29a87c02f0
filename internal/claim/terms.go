package claim

type backend struct {
	name  string
	terms Terms
}

// backends are the backends with known terms, in the order in which they are shown.
// One file has the terms of each.
var backends = []backend{{"redis", redis}, {"redlock", redlock}, {"mysql", mysql}, {"postgres", postgres}, {"etcd", etcd}, {"memory", memory}}

// TermsOf returns the terms of a backend: the given ones, if any, or the zero value
// for an unknown backend.
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
