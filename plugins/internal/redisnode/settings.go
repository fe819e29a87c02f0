package redisnode

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// KeysOf declares one configuration key for each field of the struct options,
// by its tags: key, default, secret and doc. A field without a key is another
// struct, whose fields count.
func KeysOf(options any) []driver.Key {
	var keys []driver.Key
	for f := range fields(reflect.ValueOf(options)) {
		tag := f.field.Tag
		keys = append(keys, driver.Key{
			Name: tag.Get("key"), Type: keyType(f.field.Type), Default: tag.Get("default"),
			Secret: tag.Get("secret") == "true", Doc: tag.Get("doc"),
		})
	}
	return keys
}

// Decode sets the fields of the struct that options points to from cfg, which
// Spec.CheckConfig has checked.
func Decode(cfg driver.Config, options any) {
	for f := range fields(reflect.ValueOf(options).Elem()) {
		name := f.field.Tag.Get("key")
		switch f.value.Interface().(type) {
		case string:
			f.value.SetString(cfg[name])
		case int:
			f.value.SetInt(int64(cfg.Int(name)))
		case bool:
			f.value.SetBool(cfg.Bool(name))
		case time.Duration:
			f.value.SetInt(int64(cfg.Duration(name)))
		case []string:
			f.value.Set(reflect.ValueOf(cfg.List(name)))
		}
	}
}

// Fill gives the fields of the struct that options points to their defaults
// where they are zero.
func Fill(options any) {
	defaults := driver.Config{}
	for f := range fields(reflect.ValueOf(options).Elem()) {
		if f.value.IsZero() {
			defaults[f.field.Tag.Get("key")] = f.field.Tag.Get("default")
		}
	}
	filled := reflect.New(reflect.TypeOf(options).Elem())
	Decode(defaults, filled.Interface())
	var from []reflect.Value
	for f := range fields(filled.Elem()) {
		from = append(from, f.value)
	}
	i := 0
	for f := range fields(reflect.ValueOf(options).Elem()) {
		if f.value.IsZero() {
			f.value.Set(from[i])
		}
		i++
	}
}

type field struct {
	field reflect.StructField
	value reflect.Value
}

func fields(v reflect.Value) func(yield func(field) bool) {
	return func(yield func(field) bool) { walk(v, yield) }
}

func walk(v reflect.Value, yield func(field) bool) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("key") == "" {
			if f.Type.Kind() == reflect.Struct && !walk(v.Field(i), yield) {
				return false
			}
			continue
		}
		if !yield(field{f, v.Field(i)}) {
			return false
		}
	}
	return true
}

func keyType(t reflect.Type) driver.KeyType {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return driver.TypeDuration
	case reflect.TypeFor[[]string]():
		return driver.TypeList
	}
	switch t.Kind() {
	case reflect.Int:
		return driver.TypeInt
	case reflect.Bool:
		return driver.TypeBool
	}
	return driver.TypeString
}

// between is an error wrapping driver.ErrConfig when value is below least or
// above most.
func between(key string, value, least, most int) error {
	if value >= least && value <= most {
		return nil
	}
	return fmt.Errorf("%w: %s is %d, not %d to %d", driver.ErrConfig, key, value, least, most)
}

// positive is an error wrapping driver.ErrConfig for a duration that is not.
func positive(key string, d time.Duration) error {
	if d > 0 {
		return nil
	}
	return fmt.Errorf("%w: %s is %v, which is not positive", driver.ErrConfig, key, d)
}

// conflict is an error wrapping driver.ErrConfig about keys that exclude each
// other.
func conflict(why string, keys ...string) error {
	return fmt.Errorf("%w: %s: %s", driver.ErrConfig, strings.Join(keys, " and "), why)
}
