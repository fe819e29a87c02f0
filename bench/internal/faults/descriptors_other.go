//go:build !linux

package faults

import "errors"

const noDescriptorLimit = "only Linux changes the limits of another process"

func limitDescriptors(int, int) (func() error, error) { return nil, errors.New(noDescriptorLimit) }
