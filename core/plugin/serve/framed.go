package serve

import (
	"context"
	"os"
	"path/filepath"

	"github.com/lockbench/lockbench/core/plugin/internal/frame"
	"github.com/lockbench/lockbench/core/plugin/internal/wire"
)

// framed serves protocol version 2. Operations arrive on a separate data socket. As in version 1,
// they then pass through the process's tracker.
type framed struct{ *process }

// Configure implements wire.Host.
func (p framed) Configure(ctx context.Context, s wire.Setup) (wire.Opened, error) {
	path := filepath.Join(os.Getenv(wire.EnvDir), "data")
	l, err := frame.Listen(path)
	if err != nil {
		return wire.Opened{}, err
	}
	o, err := p.process.Configure(ctx, s)
	if err != nil {
		l.Close()
		return o, err
	}
	o.DataSocket = path
	go p.operate(l, o)
	return o, nil
}

// operate serves the data socket until the host closes its connections. After that, the process
// runs until the host calls Close, or until lifeline.go finds that the host is gone.
func (p framed) operate(l *frame.Listener, o wire.Opened) {
	refuse := func(err error) { p.log.Warn("connection refused", "err", err) }
	if err := l.Serve(o.Backend, p.redact, refuse, p.lifeline.parent, p.lifeline.hostPid); err != nil && !p.isClosed() {
		p.log.Warn("data connection ended", "err", err)
	}
}
