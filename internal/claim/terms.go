package claim

type backend struct {
	name  string
	terms Terms
}

// backends are those of which something is known, in the order in which they are
// shown. One file has the terms of each.
var backends = []backend{{"redis", redis}, {"redlock", redlock}, {"mysql", mysql}, {"postgres", postgres}, {"etcd", etcd}, {"memory", memory}}

// TermsOf are the terms of a backend: those that are given, if any are, or the zero
// value when nothing is known of it.
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
