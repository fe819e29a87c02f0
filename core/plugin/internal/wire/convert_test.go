package wire

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lockbench/lockbench/core/driver"
	"github.com/lockbench/lockbench/core/plugin/lockpb"
)

// filled returns a struct in which every field has a value. So these
// tests fail if the protocol omits a new field.
func filled[V any](t *testing.T) V {
	t.Helper()
	var v V
	fill(t, reflect.ValueOf(&v).Elem())
	return v
}

func fill(t *testing.T, v reflect.Value) {
	t.Helper()
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1 << 63)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0))
	case reflect.Uint8:
		v.SetUint(255)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i))
		}
	case reflect.Interface:
		v.Set(reflect.ValueOf(driver.ErrDenied))
	default:
		t.Fatalf("no value for a %v", v.Type())
	}
}

func sent[M proto.Message](t *testing.T, m, empty M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(b, empty); err != nil {
		t.Fatal(err)
	}
	return empty
}

func TestNoFieldIsLost(t *testing.T) {
	request := filled[driver.Request](t)
	if got := toRequest(sent(t, fromRequest(request), &lockpb.Request{})); !reflect.DeepEqual(got, request) {
		t.Errorf("request: got %+v, want %+v", got, request)
	}
	holder := filled[driver.Holder](t)
	if got := ToHolder(sent(t, FromHolder(holder), &lockpb.Holder{})); !reflect.DeepEqual(got, holder) {
		t.Errorf("holder: got %+v, want %+v", got, holder)
	}
	props := filled[driver.Properties](t)
	if got := toProperties(sent(t, fromProperties(props), &lockpb.Properties{})); !reflect.DeepEqual(got, props) {
		t.Errorf("properties: got %+v, want %+v", got, props)
	}
	for kind, want := range map[driver.OpKind]lockpb.Op_Kind{
		driver.OpAcquire: lockpb.Op_ACQUIRE, driver.OpRenew: lockpb.Op_RENEW, driver.OpRelease: lockpb.Op_RELEASE, driver.OpWithdraw: lockpb.Op_WITHDRAW,
	} {
		op := driver.Op{Kind: kind, Request: request}
		m := sent(t, fromOp(op), &lockpb.Op{})
		if got := toOp(m); !reflect.DeepEqual(got, op) || m.Kind != want {
			t.Errorf("op: got %+v as %v, want %+v as %v", got, m.Kind, op, want)
		}
	}
	for kind, want := range map[driver.NoticeKind]lockpb.Notice_Kind{
		driver.NoticeLost: lockpb.Notice_LOST, driver.NoticeDown: lockpb.Notice_DOWN, driver.NoticeUp: lockpb.Notice_UP,
	} {
		notice := filled[driver.Notice](t)
		notice.Kind, notice.Plugin = kind, false // only the host sets Plugin
		m := sent(t, fromNotice(notice, nil), &lockpb.Notice{})
		if got := toNotice(m); !reflect.DeepEqual(got, notice) || m.Kind != want {
			t.Errorf("notice: got %+v as %v, want %+v as %v", got, m.Kind, notice, want)
		}
	}
}

func TestValuesThatAreEasilyConfused(t *testing.T) {
	if FromHolder(driver.Holder{}) != nil || ToHolder(nil).Held() {
		t.Error("nobody became somebody")
	}
	for _, value := range [][]byte{nil, {}} {
		r := toRequest(sent(t, fromRequest(driver.Request{Value: value}), &lockpb.Request{}))
		if (r.Value == nil) != (value == nil) {
			t.Errorf("value %#v became %#v", value, r.Value)
		}
	}
	for _, d := range []time.Duration{-1, 1, 1500 * time.Microsecond, 1<<63 - 1} {
		if got := toRequest(sent(t, fromRequest(driver.Request{TTL: d}), &lockpb.Request{})).TTL; got != d {
			t.Errorf("TTL %v became %v", d, got)
		}
	}
}

func TestInvalidNamesAreNotSent(t *testing.T) {
	u := NewUnary(nil) // a call that sends anything would panic
	_, err := u.TryAcquire(t.Context(), driver.Request{Name: "\xff"})
	if !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestRedactorFindsSecretsInJSON(t *testing.T) {
	var r *Redactor
	if r.Text("hunter2") != "hunter2" {
		t.Error("no redactor changed a text")
	}
	r = &Redactor{}
	r.SetConfig(map[string]string{"a": `quo"ted`, "b": `quo"ted and longer`, "c": "x"}, func(string, string) bool { return true })
	for text, want := range map[string]string{
		`plain quo"ted`:               "plain [secret]",
		`{"m":"quo\"ted"}`:            `{"m":"[secret]"}`,
		`quo"ted and longer, no less`: "[secret], no less",
		"x is too short to be one":    "x is too short to be one",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%s became %s, want %s", text, got, want)
		}
	}
}
