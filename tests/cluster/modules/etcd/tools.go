//go:build tools

// Package etcd pins the test cluster's etcd.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
