package wire

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockbench/lockbench/core/driver"
)

// If the plugin or gRPC reports a passed deadline too early, a call must wait until ctx ends.
func TestDeadlineIsOverWhenTheAnswerSaysSo(t *testing.T) {
	for name, hear := range map[string]func(context.Context) error{
		"answer": func(ctx context.Context) error { return outcome(ctx, EncodeError(context.DeadlineExceeded, nil), nil) },
		"transport": func(ctx context.Context) error {
			return outcome(ctx, nil, status.Error(codes.DeadlineExceeded, "late"))
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := hear(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() == nil || Ended(ctx, err) != ctx.Err() {
			t.Errorf("%s: got %v, ctx says %v", name, err, ctx.Err())
		}
		cancel()
	}
	// A call must not wait for the end of a ctx that ends much later, whatever the plugin answers.
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := outcome(ctx, EncodeError(driver.ErrUnavailable, nil), nil); !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
	if err := outcome(ctx, EncodeError(context.DeadlineExceeded, nil), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestTransportFailures(t *testing.T) {
	ctx := t.Context()
	for code, want := range map[codes.Code]error{
		codes.Unavailable: driver.ErrUnavailable, codes.Internal: driver.ErrUnavailable, codes.Canceled: driver.ErrUnavailable,
		codes.ResourceExhausted: driver.ErrUnavailable, codes.Unimplemented: driver.ErrUnsupported,
	} {
		err := outcome(ctx, nil, status.Error(code, "text"))
		if !errors.Is(err, want) || errors.Is(err, driver.ErrNotSent) {
			t.Errorf("%v became %v", code, err)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := unsent(ended, "a"); !errors.Is(err, driver.ErrNotSent) || !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call with a ctx that has ended: %v", err)
	}
	if err := outcome(ended, nil, status.Error(codes.Canceled, "")); errors.Is(err, driver.ErrNotSent) || !errors.Is(err, context.Canceled) {
		t.Errorf("a call whose ctx has ended meanwhile: %v", err)
	}
}
