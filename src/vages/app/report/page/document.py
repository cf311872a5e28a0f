"""A self-contained HTML page with its style, script and pictures."""

from dataclasses import dataclass
from importlib.resources import files

from vages.app.report.page.markup import Markup, element, joined

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
RELOAD = 10  # seconds after which the page of a watched run reloads itself


@dataclass(frozen=True)
class Section:
    """A heading and its content; a `folded` section is opened by the reader."""

    title: str
    body: Markup
    folded: bool = False


@dataclass(frozen=True)
class Header:
    """The title, status and key figures of a page; `tone` is good, bad or plain."""

    kind: str
    title: str
    status: str
    tone: str
    told: object
    figures: Markup


def page(header: Header, sections: list[Section], problems: list[str], *, reloads: bool = False) -> str:
    """Return the whole page; with `reloads`, it reloads itself every few seconds."""
    named = [(f"s{i}", section) for i, section in enumerate(sections, 1)]
    links = (element("li", element("a", section.title, href=f"#{name}")) for name, section in named)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", http_equiv="refresh", content=RELOAD) if reloads else "",
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"{header.title}: {header.kind}"),
        element("style", _own("style.css")),
    )
    body = element(
        "body",
        element("a", "Skip to the results", href="#results", class_="skip"),
        element(
            "header",
            element("p", header.kind, class_="kind"),
            element("h1", header.title),
            element("p", element("span", header.status, class_=f"pill {header.tone}"), " ", header.told, class_="told"),
            header.figures,
            element("nav", element("ul", *links), aria_label="Sections"),
        ),
        element("main", _noted(problems), *(_section(name, one) for name, one in named), id="results"),
        element("footer", element("p", "Made by vages. This page works offline and contains no trackers.")),
        element("script", _own("script.js")),
    )
    return "<!doctype html>\n" + element("html", head, body, lang="en") + "\n"


def _section(name: str, section: Section) -> Markup:
    title = element("h2", section.title)
    inside = (
        element("details", element("summary", title), section.body) if section.folded else joined([title, section.body])
    )
    return element("section", inside, id=name)


def _noted(problems: list[str]) -> Markup:
    if not problems:
        return Markup("")
    items = (element("li", problem) for problem in problems[:20])
    return element(
        "aside",
        element("p", element("b", "Some files could not be read.")),
        element("ul", *items),
        class_="notice",
        aria_label="Files that could not be read",
    )


def _own(name: str) -> Markup:
    """Return a file of this package as trusted markup."""
    return Markup(files("vages.app.report.page").joinpath(name).read_text(encoding="utf-8"))
