package config

import (
	"reflect"
	"time"

	"github.com/lockbench/lockbench/core/driver"
)

// KeysOf declares one configuration key for each field of the struct options
// that has the tag key, by its tags: key, default, required, secret and doc.
// The fields of an embedded struct count too, and its own tags are defaults of
// theirs: a backend that needs more time than others writes
//
//	config.Connect `dial_timeout:"3s"`
func KeysOf(options any) []driver.Key {
	var keys []driver.Key
	for f := range fields(reflect.ValueOf(options)) {
		tag := f.field.Tag
		keys = append(keys, driver.Key{
			Name: f.key, Type: keyType(f.field.Type), Default: f.standard,
			Required: tag.Get("required") == "true", Secret: tag.Get("secret") == "true", Doc: tag.Get("doc"),
		})
	}
	return keys
}

// Decode sets the fields of the struct that options points to from cfg, which
// Spec.CheckConfig has checked.
func Decode(cfg driver.Config, options any) {
	for f := range fields(reflect.ValueOf(options).Elem()) {
		f.set(cfg)
	}
}

// Filled returns a copy of options, nil for none, with the defaults filled in.
func Filled[O any](options *O) O {
	var o O
	if options != nil {
		o = *options
	}
	Fill(&o)
	return o
}

// Fill gives the fields of the struct that options points to their defaults
// where they are zero.
func Fill(options any) {
	for f := range fields(reflect.ValueOf(options).Elem()) {
		if f.value.IsZero() {
			f.set(driver.Config{f.key: f.standard})
		}
	}
}

type field struct {
	field    reflect.StructField
	value    reflect.Value
	key      string
	standard string // its default
}

func (f field) set(cfg driver.Config) {
	switch f.value.Interface().(type) {
	case string:
		f.value.SetString(cfg[f.key])
	case int:
		f.value.SetInt(int64(cfg.Int(f.key)))
	case bool:
		f.value.SetBool(cfg.Bool(f.key))
	case *bool:
		if cfg[f.key] != "" {
			f.value.Set(reflect.ValueOf(new(cfg.Bool(f.key))))
		}
	case time.Duration:
		f.value.SetInt(int64(cfg.Duration(f.key)))
	case []string:
		f.value.Set(reflect.ValueOf(cfg.List(f.key)))
	}
}

func fields(v reflect.Value) func(yield func(field) bool) {
	return func(yield func(field) bool) { walk(v, "", yield) }
}

// walk yields the fields of v, which is embedded with the tag outer.
func walk(v reflect.Value, outer reflect.StructTag, yield func(field) bool) bool {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		key := f.Tag.Get("key")
		switch {
		case key == "" && f.Anonymous:
			if !walk(v.Field(i), f.Tag, yield) {
				return false
			}
		case key != "":
			standard, ok := outer.Lookup(key)
			if !ok {
				standard = f.Tag.Get("default")
			}
			if !yield(field{f, v.Field(i), key, standard}) {
				return false
			}
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
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int:
		return driver.TypeInt
	case reflect.Bool:
		return driver.TypeBool
	}
	return driver.TypeString
}
