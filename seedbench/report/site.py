"""Templates into pages: everything inline, nothing loaded, text from outside inert.

A page is a template of `templates/` that extends `base.html.jinja` and fills its blocks. Whatever it prints passes
through `inert` and is escaped, so that no text from a model, a server or a game becomes markup, or hides. The one
script is named by its hash in the page's Content-Security-Policy: no other runs, wherever it might come from.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from seedbench.errors import SeedBenchError
from seedbench.report import filters
from seedbench.ui.text import inert
from seedbench.ui.traces import EDGES
from seedbench.ui.viewer import TEXT_LIMIT

_SCRIPTLESS = "default-src 'none'; style-src 'unsafe-inline'"


def write(target: Path, template: str, **context: Any) -> Path:
    """Render a template into the page `target` in one step and return its path.

    Iterators in the context are consumed while the page is written, so that a page of any length needs no memory.

    Args:
        target: the page; readers see the old one or the new one, never half. Its folder must exist.
        template: name of a file in `seedbench/report/templates`.
        context: what the template prints. A name that is missing is an error; strings are cut after 20,000 characters,
            with the count of what is left out.

    Raises:
        SeedBenchError: the page cannot be written; and whatever reading the context's iterators raises.
    """
    draft = target.with_name(f".{target.name}.tmp")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as page:
            page.writelines(environment().get_template(template).generate(**context))
        draft.replace(target)
    except OSError as error:
        raise SeedBenchError(
            f"cannot write the page '{target}': {error.strerror}. Choose a name in an existing folder that you may"
            " write to, on a disk with free space."
        ) from error
    finally:
        with suppress(OSError):
            draft.unlink()
    return target


@cache
def environment() -> jinja2.Environment:
    """The templates, with the filters of `filters.py` and the globals `css`, `js`, `policy` and `scriptless`."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("seedbench.report"),
        autoescape=True,
        finalize=_inert,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    js = _asset("site.js")
    digest = base64.b64encode(hashlib.sha256(js.encode()).digest()).decode()
    made.globals |= {
        "EDGES": EDGES,
        "css": Markup(_asset("site.css")),
        "js": Markup(js),
        "policy": Markup(f"{_SCRIPTLESS}; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"),
        "scriptless": Markup(_SCRIPTLESS),
    }
    known: dict[str, Callable[..., Any]] = {name: getattr(filters, name) for name in filters.__all__}
    made.filters |= known
    return made


def _asset(name: str) -> str:
    return files("seedbench.report").joinpath("assets", name).read_text(encoding="utf-8")


def _inert(value: Any) -> Any:
    # Markup comes from macros, whose parts have been here before, and from this module.
    return inert(value, TEXT_LIMIT) if isinstance(value, str) and not isinstance(value, Markup) else value
