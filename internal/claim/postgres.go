package claim

var postgres = inRows(
	"a grant is on disk before it is answered only with `fsync=on` and a `synchronous_commit` other than `off`, which roles and databases may override",
)
