//! The blocks of the other forms of a report, as markup.

use super::markup::{element, escaped, folded, heading, scrolling};
use crate::report::{Block, Grid};

/// Rows of a table that a page shows. The other forms have all.
const ROWS_MAX: usize = 1000;

/// The blocks, one below the other.
pub(super) fn blocks(blocks: &[Block]) -> String {
    blocks.iter().map(block).collect()
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(heading) => element("h2", "", &escaped(heading)),
        Block::Text(text) => element("p", "", &escaped(text)),
        Block::Lines(lines) => {
            let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
            element("p", "", &lines.join("<br>\n"))
        }
        Block::List(items) => {
            element("ul", "", &items.iter().map(|text| item(text)).collect::<String>())
        }
        Block::Table(grid) => table(grid),
    }
}

/// A sentence of a list. Warnings stand out.
pub(super) fn item(text: &str) -> String {
    element("li", if text.starts_with("Warning:") { "bad" } else { "" }, &escaped(text))
}

/// A table that scrolls by itself where it is wider than the window.
pub(super) fn table(grid: &Grid) -> String {
    let name = if grid.title.is_empty() { "table" } else { &grid.title };
    let caption = match grid.title.as_str() {
        "" => String::new(),
        title => element("caption", "", &escaped(title)),
    };
    let class = |index: usize| if index < grid.words { "" } else { "figure" };
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate();
        let cells = cells.map(|(index, cell)| element("td", class(index), &escaped(cell)));
        element("tr", "", &cells.collect::<String>())
    };
    let head = grid.head.iter().enumerate().map(|(index, cell)| heading(class(index), cell));
    let head = element("tr", "", &head.collect::<String>());
    let rows: String = grid.rows.iter().take(ROWS_MAX).map(row).collect();
    let table =
        format!("<table>\n{caption}<thead>\n{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n");
    let left_out = grid.rows.len().saturating_sub(ROWS_MAX);
    let left_out =
        (left_out > 0).then(|| format!("{left_out} more rows: siga lab report FILE --format csv"));
    let notes = grid.notes.iter().chain(&left_out).map(|text| note(text));
    scrolling(name, &table) + &notes.collect::<String>()
}

/// A table that is folded away.
pub(super) fn folded_table(summary: &str, grid: &Grid) -> String {
    if grid.rows.is_empty() { String::new() } else { folded(summary, &table(grid)) }
}

/// A sentence beside a plot; nothing where it is empty.
pub(super) fn note(text: &str) -> String {
    if text.is_empty() { String::new() } else { element("p", "note", &escaped(text)) }
}
