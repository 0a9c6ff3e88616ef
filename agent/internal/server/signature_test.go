package server

import "tupper.dev/agent/internal/files"

func signature(path, operation, expiration string) string {
	return files.Sign(path, operation, "", "tok", expiration)
}
