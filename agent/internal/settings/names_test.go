package settings

import "testing"

func TestEscapeIsReversible(t *testing.T) {
	for _, name := range []string{"plain", "\xff", "a\xffb", "\xe6\x97", `\x41`, "日", "a\nb", "\xff\\x41", "\xff\\xff", `\`} {
		shown := Escape(name)
		if got := Unescape(shown); got != name {
			t.Errorf("%q is shown as %q and read as %q", name, shown, got)
		}
	}
	if Escape("\xff") != `\xff` || Escape("é") != "é" {
		t.Error("unexpected rendering")
	}
}
