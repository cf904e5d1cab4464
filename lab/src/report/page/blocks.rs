//! The blocks of the other forms of a report, as markup.

use super::markup::{element, escaped, folded, heading, scrolling, text};
use crate::report::{Block, Grid};

/// Rows of a table that a page shows. The other forms have all.
const ROWS_MAX: usize = 1000;

/// The blocks, one below the other.
pub(super) fn blocks(blocks: &[Block]) -> String {
    blocks.iter().map(block).collect()
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(heading) => text("h2", "", heading),
        Block::Text(words) => element("p", "", &escaped(words).replace('\n', "<br>\n")),
        Block::List(items) => list(items),
        Block::Table(grid) => table(grid),
    }
}

/// Sentences, if there are any. Warnings stand out.
pub(super) fn list(items: &[String]) -> String {
    let class = |item: &str| if item.starts_with("Warning:") { "bad" } else { "" };
    let items: String = items.iter().map(|item| text("li", class(item), item)).collect();
    if items.is_empty() { items } else { element("ul", "", &items) }
}

/// A table that scrolls by itself where it is wider than the window.
pub(super) fn table(grid: &Grid) -> String {
    let name = if grid.title.is_empty() { "table" } else { &grid.title };
    let caption =
        if grid.title.is_empty() { String::new() } else { text("caption", "", &grid.title) };
    let class = |index: usize| if index < grid.words { "" } else { "figure" };
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate();
        let cells: String = cells.map(|(index, cell)| text("td", class(index), cell)).collect();
        element("tr", "", &cells)
    };
    let head = grid.head.iter().enumerate().map(|(index, cell)| heading(class(index), cell));
    let head = element("tr", "", &head.collect::<String>());
    let rows: String = grid.rows.iter().take(ROWS_MAX).map(row).collect();
    let table =
        format!("<table>\n{caption}<thead>\n{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n");
    let more = grid.rows.len().saturating_sub(ROWS_MAX);
    let notes: String = grid.notes.iter().map(|words| note(words)).collect();
    let more = counted(more, "more rows: siga lab report FILE --format csv");
    scrolling(name, &table) + &notes + &more
}

/// A table that is folded away.
pub(super) fn folded_table(summary: &str, grid: &Grid) -> String {
    if grid.rows.is_empty() { String::new() } else { folded(summary, &table(grid)) }
}

/// A sentence beside a plot; nothing where it is empty.
pub(super) fn note(words: &str) -> String {
    if words.is_empty() { String::new() } else { text("p", "note", words) }
}

/// A sentence about so many things that a plot or a table lacks; nothing where there are none.
pub(super) fn counted(count: usize, words: &str) -> String {
    if count == 0 { String::new() } else { note(&format!("{count} {words}")) }
}
