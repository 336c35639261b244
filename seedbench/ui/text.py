"""Text from models and servers, made inert before a person sees it."""

import re

# C0 and C1 controls but newline and tab: ANSI escapes, bells, carriage returns that overwrite a line.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# Bidirectional overrides, zero-width marks (they reorder or hide text) and lone surrogates (no terminal takes them).
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def inert(text: str, limit: int | None = None) -> str:
    """Return `text` with every control and direction character shown as its code, e.g. `<1b>`.

    `limit` cuts longer texts and says how many characters were left out. Rich markup is not touched:
    print the result with `rich.text.Text` or `markup=False`, which never parse it.
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}… ({len(text) - limit:,} more characters)"
    text = _CONTROL.sub(lambda m: f"<{ord(m[0]):02x}>", text)
    return _INVISIBLE.sub(lambda m: f"<{ord(m[0]):04x}>", text)
