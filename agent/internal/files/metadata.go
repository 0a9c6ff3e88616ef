package files

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"tupper.dev/agent/internal/httpd"

	"tupper.dev/agent/internal/filesystem"
)

const (
	metadataHeader = "X-Metadata-"
	maxKey         = 246
	maxTotal       = 4096
)

// parseMetadata reads the X-Metadata-* headers.
func parseMetadata(h httpd.Header) (map[string]string, error) {
	meta := map[string]string{}
	total := 0
	for name, values := range h {
		if len(name) < len(metadataHeader) || !strings.EqualFold(name[:len(metadataHeader)], metadataHeader) {
			continue
		}
		key := strings.ToLower(name[len(metadataHeader):])
		value := values[0]
		if len(key) < 1 || len(key) > maxKey {
			return nil, failf(httpd.StatusBadRequest, "invalid metadata: a key of %d bytes (1 to %d are allowed)", len(key), maxKey)
		}
		if !printable(key) || !printable(value) {
			return nil, failf(httpd.StatusBadRequest, "invalid metadata: key '%s' or its value is not printable ASCII", key)
		}
		total += len(filesystem.MetadataPrefix) + len(key) + len(value)
		meta[key] = value
	}
	if total > maxTotal {
		return nil, failf(httpd.StatusBadRequest, "invalid metadata: %d bytes in all are more than %d", total, maxTotal)
	}
	return meta, nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// setMetadata replaces the metadata of a file and returns what is there
// afterwards. File systems without xattrs are not an error.
func (s *Service) setMetadata(path string, meta map[string]string) map[string]string {
	before := filesystem.ReadMetadata(path)
	if len(meta) == 0 && len(before) == 0 {
		return nil
	}
	for key := range before {
		if _, keep := meta[key]; !keep {
			_ = syscall.Removexattr(path, filesystem.MetadataPrefix+key)
		}
	}
	keys := make([]string, 0, len(meta))
	for key := range meta {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		err := syscall.Setxattr(path, filesystem.MetadataPrefix+key, []byte(meta[key]), 0)
		if err != nil && !errors.Is(err, syscall.ENOTSUP) {
			s.log("files.metadata_failed error=%q", err)
		}
	}
	return filesystem.ReadMetadata(path)
}
