package claim

var postgres = inRows(
	"a grant is on disk before it is answered only with `fsync=on` and another `synchronous_commit` than `off`, which a role or a database may have of its own",
)
