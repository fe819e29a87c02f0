package claim

type backend struct {
	name  string
	terms Terms
}

// backends lists the backends whose terms are known, in the order of the documents.
var backends = []backend{{"redis", redis}, {"redlock", redlock}, {"mysql", mysql}, {"postgres", postgres}, {"etcd", etcd}, {"memory", memory}}

// TermsOf returns *given. If given is nil, it returns the known terms of the backend, or the zero
// value for an unknown backend.
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
