package main

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/lockbench/lockbench/bench"
)

// Packagers use this hidden command to write manual pages and completions.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write manual pages and completions, in the places of a prefix",
		Long:    `man writes share/man/man1 and the completions of bash, zsh and fish below DIR.`,
		Example: `  lockbench man /usr/local`,
		Hidden:  true,
		Args:    needs(1, 1, "a directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root, share := cmd.Root(), filepath.Join(args[0], "share")
			pages := filepath.Join(share, "man", "man1")
			if err := os.MkdirAll(pages, 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true // without a date, the same sources give the same pages
			header := &doc.GenManHeader{Section: "1", Source: "lockbench " + bench.Version(), Manual: "lockbench"}
			return errors.Join(doc.GenManTree(root, header, pages),
				completion(filepath.Join(share, "bash-completion", "completions", "lockbench"), func(path string) error { return root.GenBashCompletionFileV2(path, true) }),
				completion(filepath.Join(share, "zsh", "site-functions", "_lockbench"), root.GenZshCompletionFile),
				completion(filepath.Join(share, "fish", "vendor_completions.d", "lockbench.fish"), func(path string) error { return root.GenFishCompletionFile(path, true) }))
		},
	}
}

func completion(path string, write func(path string) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return write(path)
}
