"""Tables of plain values: settings, records, claims, events. Long values are shortened."""

from typing import Any

from vages.app.report.page.markup import Markup, as_float, element, is_number, joined, number, written

_DEEP, _LONG, _ROWS, _TEXT = 4, 200, 200, 300  # limits: levels, entries of a table, rows of a table, characters
_ENTRIES = 12  # of an event

_VERDICTS = ("does not hold", "bad", "✗"), ("holds", "good", "✓")
_NO_VERDICT = ("no verdict", "plain", "?")


def settings_table(settings: dict[str, Any], caption: str) -> Markup:
    """Return a table of names and values; nested values are named by their path."""
    entries = _flat(settings)
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in entries[:_LONG]]
    if len(entries) > _LONG:
        rows.append(element("tr", element("th", "…", scope="row"), element("td", f"{len(entries) - _LONG} more")))
    return _scrolled(element("table", element("caption", caption), element("tbody", *rows), class_="pairs"), caption)


def records_table(records: list[dict[str, Any]], caption: str) -> Markup:
    """Return a table of the first records, with one row for each record and one column for each name."""
    names = list(dict.fromkeys(name for record in records[:_ROWS] for name in record))[:30]
    head = element("tr", *(element("th", _short(name).replace("_", " "), scope="col") for name in names))
    rows = [element("tr", *(element("td", value(one.get(name, ""))) for name in names)) for one in records[:_ROWS]]
    left = f"{caption}; the first {_ROWS} of {len(records)}" if len(records) > _ROWS else caption
    table = element("table", element("caption", left), element("thead", head), element("tbody", *rows), class_="grid")
    return _scrolled(table, caption)


def claims_list(claims: list[Any]) -> Markup:
    """Return a list of claims with their verdicts, values and bounds."""
    items = []
    for claim in claims[:_ROWS]:
        claim = claim if isinstance(claim, dict) else {"claim": claim}
        holds = claim.get("holds")
        verdict = _VERDICTS[int(holds)] if isinstance(holds, bool) else _NO_VERDICT
        mark = element(
            "span", element("span", verdict[2], aria_hidden="true"), " ", verdict[0], class_=f"pill {verdict[1]}"
        )
        numbers = [element("span", name, " ", value(claim[name])) for name in ("value", "bound") if name in claim]
        told = element("div", element("p", _short(claim.get("claim", ""))), element("p", *numbers, class_="numbers"))
        items.append(element("li", mark, told, class_=verdict[1]))
    return element("ul", *items, class_="claims")


def events_list(events: list[dict[str, Any]], alarming: frozenset[str]) -> Markup:
    """Return a list of events in order; those in `alarming` are highlighted."""
    items = []
    shown = events if len(events) <= _ROWS else [*events[: _ROWS // 2], *events[-_ROWS // 2 :]]
    for event in shown:
        name = str(event.get("event", "?"))
        rest = dict([(key, x) for key, x in event.items() if key not in ("time", "event")][:_ENTRIES])
        about = joined((joined([element("i", _short(key)), " ", value(x)]) for key, x in rest.items()), ", ")
        when = _short(event.get("time", "")).replace("T", " ").removesuffix("Z")
        items.append(
            element(
                "li",
                element("time", when),
                element("div", element("b", _short(name)), element("span", about) if rest else ""),
                class_="bad" if name in alarming else None,
            )
        )
    left = (
        element("p", f"{len(events) - len(shown)} events in between are not shown.") if len(shown) < len(events) else ""
    )
    return joined([element("ol", *items, class_="events"), left])


def key_figures(figures: dict[str, object]) -> Markup:
    """Return the key figures in large type."""
    return element(
        "dl",
        *(element("div", element("dt", name), element("dd", told)) for name, told in figures.items()),
        class_="key",
    )


def value(of: Any) -> Markup:
    """Format any JSON value; long values are shortened."""
    if of is None:
        return element("span", "none", class_="note")
    if isinstance(of, bool):
        return Markup("yes" if of else "no")
    if is_number(of):
        return number(of)
    if isinstance(of, list):
        return _of_list(of)
    if isinstance(of, dict):
        return (
            joined((joined([_short(key), " ", value(x)]) for key, x in list(of.items())[:6]), ", ")
            if _shallow(of)
            else (element("span", f"{len(of)} entries", class_="note"))
        )
    return element("span", _short(of))


def _of_list(of: list[Any]) -> Markup:
    if of and len(of) <= 12 and all(is_number(x) or isinstance(x, str) or x is None for x in of):
        return joined(map(value, of), ", ")
    numbers = [x for x in map(as_float, of) if x == x]
    if numbers and len(numbers) == len(of):
        return element("span", f"{len(of):,} numbers from {written(min(numbers))} to {written(max(numbers))}")
    return element("span", f"{len(of):,} entries", class_="note")


def _flat(settings: dict[str, Any]) -> list[tuple[str, Markup]]:
    """Return entries in order; those of nested objects are named by their path."""
    entries: list[tuple[str, Markup]] = []
    waiting = [("", settings, 0)]
    while waiting:
        prefix, inner, depth = waiting.pop()
        following = []
        for key, x in inner.items():
            name = f"{prefix}{_short(key)}"
            if isinstance(x, dict) and x and depth < _DEEP:
                following.append((f"{name} › ", x, depth + 1))
            else:
                entries.append((name, value(x)))
        waiting += reversed(following)
    return entries


def _shallow(of: dict[str, Any]) -> bool:
    return not any(isinstance(x, dict | list) for x in of.values())


def _short(text: object) -> str:
    text = str(text)
    return text if len(text) <= _TEXT else text[:_TEXT] + " …"


def _scrolled(table: Markup, label: str) -> Markup:
    """Wrap a table so that it scrolls if it is too wide, also by keyboard."""
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label=label)
