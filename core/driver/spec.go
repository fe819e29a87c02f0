package driver

import (
	"cmp"
	"context"
	"io"
	"log/slog"
)

// KeyType is the type of a configuration value.
type KeyType string

// The types of configuration values. In a Config, all values are text.
const (
	TypeString   KeyType = "string"
	TypeInt      KeyType = "int"
	TypeBool     KeyType = "bool"
	TypeDuration KeyType = "duration" // in the format of time.ParseDuration
	TypeList     KeyType = "list"     // separated by commas
)

// Key declares one configuration key of a backend.
type Key struct {
	Name     string  `json:"name"`
	Type     KeyType `json:"type"`
	Default  string  `json:"default"` // as text; "" when there is none
	Required bool    `json:"required"`
	Secret   bool    `json:"secret"` // not shown in logs, errors, process lists or the output of describe
	Doc      string  `json:"doc"`
}

// Config maps configuration keys to values, which [Spec.CheckConfig] has checked.
type Config map[string]string

// Command is a command that only one backend has. The user runs it as "lockplugin-NAME COMMAND",
// with the configuration from --config FILE or standard input.
type Command struct {
	Name string                                                        `json:"name"`
	Doc  string                                                        `json:"doc"`
	Run  func(ctx context.Context, cfg Config, stdout io.Writer) error `json:"-"`
}

// Spec describes a backend for serve.Main, or for [Open], which opens it in this process.
type Spec struct {
	Name string // such as "redis"; matches [a-z][a-z0-9-]*
	Doc  string // one line
	Keys []Key
	// Open makes a Backend from a checked configuration. It does not wait for the store. If a
	// value cannot work, it returns an error that wraps ErrConfig. The logger is never nil.
	Open func(ctx context.Context, cfg Config, log *slog.Logger) (Backend, error)
	// Properties has the properties of the backend that are known without asking a server.
	Properties Properties
	Commands   []Command
}

// Open opens a backend in this process, after [Spec.CheckConfig] has checked cfg. If cfg has a key
// that the backend does not have, the error wraps [ErrConfig]. A nil log means slog.Default().
func Open(ctx context.Context, s Spec, cfg Config, log *slog.Logger) (Backend, error) {
	full, err := s.CheckConfig(cfg)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, full, cmp.Or(log, slog.Default()))
}
