//go:build !amd64

package main

import "fmt"

// printTSC says that guests of this machine need no help with their clock.
func printTSC() error {
	fmt.Println(0)
	return nil
}
