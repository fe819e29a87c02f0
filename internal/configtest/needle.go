package configtest

import (
	"os"
	"strings"
	"testing"

	"github.com/lockbench/lockbench/core/driver"
)

// Needle is a password that occurs in no other text by chance.
const Needle = "nEEdle-4711"

// Haystacks are texts that contain Needle as a password, in the forms that
// people write into addresses, files and variables. Some are malformed.
var Haystacks = []string{
	Needle, "password=" + Needle, "password: " + Needle, "PASSWORD=" + Needle, `{"password":"` + Needle + `"}`,
	"redis://u:" + Needle + "@h:1/2", "rediss://:" + Needle + "@h", "unix://u:" + Needle + "@/s?db=1", "http://u:" + Needle + "@h:1", "https://" + Needle + "@h:1/",
	"u:" + Needle + "@tcp(h:1)/db?timeout=1s", "u:" + Needle + "@h", "mysql://u:" + Needle + "@h/db", "postgres://u:" + Needle + "@h:1/db?sslmode=x", "postgres://u:%" + Needle + "@h/", "u:%" + Needle + "@h:1", "u:1/" + Needle + "@h:1",
	"h:" + Needle, "h:1 password=" + Needle, "h:1,password=" + Needle, "http://h:1?password=" + Needle, "redis://h:1/" + Needle, Needle + "://h:1", "h:1/db?tls=" + Needle,
	"host=h password=" + Needle, "address=h:1\npassword=" + Needle, "address=h:1\npassword: " + Needle, "password: " + Needle + "=\naddress=h",
	"h:1\n" + Needle, "[" + Needle + "]:1", "1s password=" + Needle,
}

// Pasted has PEM keys with Needle, some damaged, as users may paste them in place of a file's name.
var Pasted = []string{
	"-----BEGIN PRIVATE KEY-----\n" + Needle + "\n-----END PRIVATE KEY-----\n", "-----BEGIN EC PRIVATE KEY-----\r\n" + Needle + "\r\n-----END EC PRIVATE KEY-----",
	`-----BEGIN PRIVATE KEY-----\n` + Needle + `\n-----END PRIVATE KEY-----`, "-----BEGIN PRIVATE KEY----- " + Needle + " -----END PRIVATE KEY-----",
	"/-----BEGIN PRIVATE KEY-----" + Needle, strings.Repeat("MIIE/ab+", 200) + Needle, Needle + "\n-----END PRIVATE KEY-----",
}

// FuzzNeedle fails if an error of the function check shows Needle. It inserts a character into a
// text with Needle, and calls check with this text as the value of each key of spec in turn. The
// text is from Pasted if the key names a file, and otherwise from Haystacks.
func FuzzNeedle(f *testing.F, spec driver.Spec, check func(driver.Config) error) {
	for i := range Haystacks {
		f.Add(uint(i), uint(0), byte(0), "x:1")
		f.Add(uint(i), uint(i), byte('@'), "u:p@tcp(x:1)/db")
		f.Add(uint(i), uint(i), byte(' '), "x:1,y:1,z:1")
	}
	f.Fuzz(func(t *testing.T, form, at uint, sign byte, address string) {
		text := Mutate(Haystacks[form%uint(len(Haystacks))], at, sign)
		for _, k := range spec.Keys {
			if strings.Contains(address, Needle) {
				continue
			}
			cfg, has := driver.Config{"address": address}, text
			if strings.HasSuffix(k.Name, "_file") {
				has = Mutate(Pasted[form%uint(len(Pasted))], at, sign)
				cfg["tls_cert_file"], cfg["tls_key_file"] = os.DevNull, os.DevNull // accepted only as a pair
			}
			cfg[k.Name] = has
			Hides(t, has, check(cfg))
		}
		read, err := driver.ReadTarget(strings.NewReader(text))
		if err == nil {
			err = check(read)
		}
		Hides(t, text, err)
	})
}

// Mutate inserts the character sign into text at the given index, but never inside Needle.
func Mutate(text string, at uint, sign byte) string {
	i := int(at % uint(len(text)+1))
	start := strings.Index(text, Needle)
	if sign == 0 || i > start && i < start+len(Needle) {
		return text
	}
	return text[:i] + string(rune(sign)) + text[i:]
}

func Hides(t *testing.T, text string, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), Needle) {
		t.Errorf("%q: the error shows the password: %v", text, err)
	}
}
