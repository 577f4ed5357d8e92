//go:build tools

// Package kueue pins the Kueue that the test cluster can have.
package kueue

import (
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
