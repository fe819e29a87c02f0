package serve

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/lockbench/lockbench/core/driver"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads a JSON object, or lines "key = value" among which empty
// ones and those that start with # mean nothing. Errors never show a value.
func readConfig(r io.Reader) (driver.Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxConfig))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrConfig, err)
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return readJSON(text)
	}
	cfg := driver.Config{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxConfig)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not key=value", driver.ErrConfig, number)
		}
		cfg[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return cfg, lines.Err()
}

// readJSON takes texts, numbers and truth values.
func readJSON(text []byte) (driver.Config, error) {
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&object) != nil {
		return nil, fmt.Errorf("%w: not a valid JSON object", driver.ErrConfig)
	}
	cfg := driver.Config{}
	for key, v := range object {
		switch v.(type) {
		case string, json.Number, bool:
			cfg[key] = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("%w: %q is not a text, number or truth value", driver.ErrConfig, key)
		}
	}
	return cfg, nil
}

// secretKey tells which keys of spec are secret.
func secretKey(spec driver.Spec) func(name, value string) bool {
	return func(name, _ string) bool {
		for _, k := range spec.Keys {
			if k.Name == name {
				return k.Secret
			}
		}
		// An unknown key may be a misspelt secret.
		return true
	}
}
