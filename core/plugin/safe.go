package plugin

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// othersWrite is the permission of everybody to write.
const othersWrite fs.FileMode = 0o002

// checkSafe refuses a binary that any user of this machine could replace: it,
// or the directory that it or a link to it is in, is writable by everybody. So
// is one further up, unless it is sticky, as /tmp is: there nobody can rename
// what is somebody else's. Who owns the files is not looked at.
func checkSafe(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := notForOthers(real, false); err != nil {
		return err
	}
	for _, p := range []string{path, real} {
		dir := filepath.Dir(p)
		if err := notForOthers(dir, false); err != nil {
			return err
		}
		for dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			if err := notForOthers(dir, true); err != nil {
				return err
			}
		}
	}
	return nil
}

func notForOthers(path string, sticky bool) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&othersWrite == 0 || sticky && info.Mode()&fs.ModeSticky != 0 {
		return nil
	}
	return fmt.Errorf("everybody may write to %s (%v)", path, info.Mode())
}
