"""One HTML page that stands alone: no script, nothing from elsewhere, light or dark as the reader has it."""

from seedbench.tables.build import Table


def to_html(table: Table) -> str:
    """The table as a whole page; every text from outside is escaped, and its control characters are shown as codes."""
    from seedbench.report.site import environment

    return environment().get_template("table.html.jinja").render(built=table) + "\n"
