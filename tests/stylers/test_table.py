from tests.stylers.table import PAGE, page_with, table


def test_the_table_of_families_is_up_to_date() -> None:
    page = PAGE.read_text("utf-8")
    assert page == page_with(table(), page), "run: python -m tests.stylers.table"
