package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// MaxConfigFile is the largest size of a configuration file that [ReadConfig] accepts, in bytes.
const MaxConfigFile = 1 << 20

// keyForm matches the key of a line "key = value". It does not match the beginning of a URL or a
// DSN, which has other characters before its first "=".
var keyForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// ReadConfig reads a configuration file: a JSON object, or lines of the form "key =
// value". It ignores empty lines and lines that start with #. Errors wrap [ErrConfig]
// and quote nothing from the file, because any text in it may be a secret.
func ReadConfig(r io.Reader) (Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxConfigFile+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if len(text) > MaxConfigFile {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrConfig, MaxConfigFile)
	}
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		return readJSON(text)
	}
	cfg := Config{}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, value, ok := cutSetting(line)
		if !ok {
			return nil, fmt.Errorf("%w: line %d is not key=value", ErrConfig, number)
		}
		cfg[key] = value
	}
	return cfg, nil
}

// ReadTarget reads a file that says how to connect to a store: a configuration file (see
// [ReadConfig]), or a file with only an address, which becomes the value of the key "address".
func ReadTarget(r io.Reader) (Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxConfigFile+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	address := strings.TrimSpace(string(text))
	_, _, isSetting := cutSetting(address)
	if address == "" || isSetting || strings.Contains(address, "\n") || strings.ContainsAny(address[:1], "{#") {
		return ReadConfig(bytes.NewReader(text))
	}
	return Config{"address": address}, nil
}

func cutSetting(line string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(line, "=")
	key = strings.TrimSpace(key)
	return key, strings.TrimSpace(value), ok && keyForm.MatchString(key)
}

func readJSON(text []byte) (Config, error) {
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&object) != nil {
		return nil, fmt.Errorf("%w: not a valid JSON object", ErrConfig)
	}
	cfg := Config{}
	for key, v := range object {
		switch v.(type) {
		case string, json.Number, bool:
			cfg[key] = fmt.Sprint(v)
		default:
			return nil, fmt.Errorf("%w: a value is not a string, number or boolean", ErrConfig)
		}
	}
	return cfg, nil
}
