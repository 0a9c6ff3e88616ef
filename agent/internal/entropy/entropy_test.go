package entropy

import "testing"

func TestAnyKernelTakesASeed(t *testing.T) {
	if err := Add([]byte("thirty-two bytes, or some more of them")); err != nil {
		t.Fatal(err)
	}
}
