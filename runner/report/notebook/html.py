"""HTML for the output of a notebook: the style of reports, which applies to nothing else on the page.

Notebooks have styles of their own for what is in an output: floating lists, striped tables, colours of a theme that may
be dark while the page is light.
"""

from functools import cache

from runner.report.html.layout import asset
from runner.report.html.markup import Content, Markup, concat, tag

CLASS = "runner-output"
_SELECTOR = 3 * f".{CLASS}"  # notebooks have rules for tables and lists, which weigh less than three classes
_BOX = f"""\
{_SELECTOR}{{padding:14px 18px;border:1px solid var(--line);border-radius:10px;background:var(--page);color:var(--ink);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
& figure,& .scroll{{margin-top:14px}}
& :is(table,tr,th,td){{background:none;color:inherit;table-layout:auto}}
& table{{margin:0;border:0}}
& :is(dt,dd){{float:none;width:auto;padding:0}}
& dt{{font-weight:400}}
& ul{{list-style-position:outside}}}}
"""


def fragment(*content: Content) -> str:
    """Content in a box with its style. There are no scripts: notebooks remove them, or run them on their own page."""
    return str(tag("div", tag("style", _style()), concat(*content), class_=CLASS))


@cache
def _style() -> Markup:
    """The style of reports as nested rules, which apply to what is in the box; its variables are those of the box."""
    rules = asset("page.css").replace(":root{", "&{")
    return Markup(f"{_SELECTOR}{{{rules}}}\n{_BOX}")
