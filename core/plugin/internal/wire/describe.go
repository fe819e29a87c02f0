package wire

import "github.com/lockbench/lockbench/core/driver"

// Description is the output of "lockplugin-NAME describe --json". It has a backend's configuration
// keys, and the properties that are known without a server.
type Description struct {
	Name       string        `json:"name"`
	Doc        string        `json:"doc"`
	Version    string        `json:"version"`   // version of the binary
	Protocols  []int         `json:"protocols"` // protocol versions that it supports
	Properties PropertiesDoc `json:"properties"`
	// Keys has no default for a secret key.
	Keys     []driver.Key     `json:"keys"`
	Commands []driver.Command `json:"commands"`
}

// PropertiesDoc has the fields of driver.Properties, with durations as text such as "10ms".
type PropertiesDoc struct {
	Fencing        driver.Fencing      `json:"fencing"`
	Scope          driver.Scope        `json:"scope"`
	FirstSpan      string              `json:"first_span"`
	TTLMin         string              `json:"ttl_min"`
	TTLStep        string              `json:"ttl_step"`
	TTLMax         string              `json:"ttl_max"`
	FIFO           bool                `json:"fifo"`
	TimedTokens    bool                `json:"timed_tokens"`
	Durability     string              `json:"durability"`
	SurvivesPlugin bool                `json:"survives_plugin"`
	Capabilities   []driver.Capability `json:"capabilities"`
}

// Describe returns the description of spec's backend for a binary of the given version.
func Describe(spec driver.Spec, version string) Description {
	p := spec.Properties
	d := Description{
		Name: spec.Name, Doc: spec.Doc, Version: version, Protocols: Versions(),
		Properties: PropertiesDoc{
			Fencing: p.Fencing, Scope: p.Scope, FirstSpan: p.FirstSpan.String(),
			TTLMin: p.TTLMin.String(), TTLStep: p.TTLStep.String(), TTLMax: p.TTLMax.String(),
			FIFO: p.FIFO, TimedTokens: p.TimedTokens, Durability: p.Durability, SurvivesPlugin: p.SurvivesPlugin,
			Capabilities: append([]driver.Capability{}, p.Capabilities...),
		},
		Keys:     append([]driver.Key{}, spec.Keys...),
		Commands: append([]driver.Command{}, spec.Commands...),
	}
	for i := range d.Keys {
		if d.Keys[i].Secret {
			d.Keys[i].Default = ""
		}
	}
	return d
}
