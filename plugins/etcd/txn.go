package etcd

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// The parts of a Txn, each one operation of the store.

// absent holds when no key in [key, end) exists; end nil is the one key.
func absent(key string, end []byte) *pb.Compare { return created(key, end, pb.Compare_EQUAL, 0) }

// at holds when key exists and was created at rev: the same owner and token.
func at(key string, rev int64) *pb.Compare { return created(key, nil, pb.Compare_EQUAL, rev) }

// worth holds when key exists with that value.
func worth(key string, value []byte) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), Result: pb.Compare_EQUAL, Target: pb.Compare_VALUE,
		TargetUnion: &pb.Compare_Value{Value: value},
	}
}

// present holds when key exists.
func present(key string) *pb.Compare { return created(key, nil, pb.Compare_GREATER, 0) }

// nothingBefore holds when every key with this prefix was created at rev or later.
func nothingBefore(prefix string, rev int64) *pb.Compare {
	return created(prefix, beyond(prefix), pb.Compare_GREATER, rev-1)
}

func created(key string, end []byte, result pb.Compare_CompareResult, rev int64) *pb.Compare {
	return &pb.Compare{
		Key: []byte(key), RangeEnd: end, Result: result, Target: pb.Compare_CREATE,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: rev},
	}
}

func put(key string, value []byte, leaseID int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, Lease: leaseID})
}

// move puts the key on another lease; value and create revision stay.
func move(key string, leaseID int64) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), IgnoreValue: true, Lease: leaseID})
}

// publish replaces the value; lease and create revision stay.
func publish(key string, value []byte) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: value, IgnoreLease: true})
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func remove(key string) *pb.RequestOp {
	return opDelete(&pb.DeleteRangeRequest{Key: []byte(key)})
}

func opDelete(r *pb.DeleteRangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
}

func read(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// exists reads whether key is there.
func exists(key string) *pb.RequestOp {
	return read(&pb.RangeRequest{Key: []byte(key), KeysOnly: true})
}

// look reads who holds name and who waits: three operations, which [seen] takes
// apart. The oldest place comes with its value.
func look(s space, name string) []*pb.RequestOp {
	holds := s.hold(name)
	return []*pb.RequestOp{read(&pb.RangeRequest{Key: []byte(holds), RangeEnd: beyond(holds), Limit: 1}), places(s, name, 1)}
}

// places reads the oldest places of name.
func places(s space, name string, limit int64) *pb.RequestOp {
	all := s.places(name)
	return read(&pb.RangeRequest{
		Key: []byte(all), RangeEnd: beyond(all), Limit: limit,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE,
	})
}

// probe is a write that leaves nothing.
func probe(s space) *pb.TxnRequest {
	return &pb.TxnRequest{Success: []*pb.RequestOp{remove(s.bars), exists(s.names)}}
}

// seen is what look found.
type seen struct {
	hold   *mvccpb.KeyValue // nil when nobody holds the lock
	head   *mvccpb.KeyValue // the oldest place, nil when there is none
	places int
	rough  bool // how long the lock is held need not be known exactly
}

func seenIn(ops []*pb.ResponseOp) seen {
	var v seen
	if kvs := ops[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		v.hold = kvs[0]
	}
	queue := ops[1].GetResponseRange()
	if kvs := queue.GetKvs(); len(kvs) > 0 {
		v.head = kvs[0]
	}
	v.places = int(queue.GetCount())
	return v
}
