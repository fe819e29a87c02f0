package claim

type backend struct {
	name  string
	terms Terms
}

// backends lists the backends with known terms, in the order in which they are
// shown. Each has a file with its terms.
var backends = []backend{{"redis", redis}, {"redlock", redlock}, {"mysql", mysql}, {"postgres", postgres}, {"etcd", etcd}, {"memory", memory}}

// TermsOf returns the terms of a backend: the given ones unless they are nil,
// or else the known ones. They are the zero value for an unknown backend.
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
