package txn

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Absent holds when key does not exist.
func Absent(key string) *pb.Compare { return created(key, nil, pb.Compare_EQUAL, 0) }

// NoneUnder holds when no key begins with prefix.
func NoneUnder(prefix string) *pb.Compare {
	return created(prefix, Beyond(prefix), pb.Compare_EQUAL, 0)
}

// NoneBefore holds when every key with this prefix was created at rev or later.
func NoneBefore(prefix string, rev int64) *pb.Compare {
	return created(prefix, Beyond(prefix), pb.Compare_GREATER, rev-1)
}

// At holds when key exists and was created at rev.
func At(key string, rev int64) *pb.Compare { return created(key, nil, pb.Compare_EQUAL, rev) }

// HasValue holds when key exists with that value.
func HasValue(key string, value []byte) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_VALUE,
		TargetUnion: &pb.Compare_Value{Value: value},
	}
}

// OnLease holds when key exists and is on that lease, 0 for none.
func OnLease(key string, lease int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_LEASE,
		TargetUnion: &pb.Compare_Lease{Lease: lease},
	}
}

func created(key string, end []byte, result pb.Compare_CompareResult, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), RangeEnd: end, Result: result, Target: pb.Compare_CREATE,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev},
	}
}

// Put puts key on a lease, 0 for none.
func Put(key string, value []byte, lease int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, Lease: lease})
}

// Move puts the key on another lease; value and create revision stay.
func Move(key string, lease int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), IgnoreValue: true, Lease: lease})
}

// Touch puts the key as it is, by which its version rises.
func Touch(key string) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), IgnoreValue: true, IgnoreLease: true})
}

// Replace replaces the value; lease and create revision stay.
func Replace(key string, value []byte) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, IgnoreLease: true})
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

// Delete deletes key.
func Delete(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}}
}

// Range reads keys.
func Range(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// puts reports whether ops put keys. That is what needs space, also where a
// compare stands before it.
func puts(ops []*pb.RequestOp) bool {
	return slices.ContainsFunc(ops, func(op *pb.RequestOp) bool {
		return op.GetRequestPut() != nil || puts(op.GetRequestTxn().GetSuccess())
	})
}

// When does op if c holds, on which nothing else of the Txn depends.
func When(c *pb.Compare, op *pb.RequestOp) *pb.RequestOp {
	return nest(&pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{op}})
}

func nest(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

// Exists reads whether key is there.
func Exists(key string) *pb.RequestOp {
	return Range(&pb.RangeRequest{Key: []byte(key), KeysOnly: true})
}

// Beyond is the end of the range of keys that begin with prefix, which must have
// a byte below 0xff.
func Beyond(prefix string) []byte {
	end := []byte(prefix)
	for i := len(end) - 1; ; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
}
