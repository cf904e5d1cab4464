//! Reports as text for terminals and as Markdown.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width,
};

use super::{Block, Grid, Report};

/// Columns of text that goes to a file or to another program.
pub const WIDTH: u16 = 100;

/// For terminals of this width.
pub fn text(report: &Report, width: u16) -> String {
    let mut out = String::new();
    for block in &report.blocks {
        match block {
            Block::Heading(heading) => {
                out += &format!("{heading}\n{}\n", "=".repeat(heading.chars().count()));
            }
            Block::Text(text) => out += &format!("{}\n\n", wrapped(text, "", width)),
            Block::Lines(lines) => {
                lines.iter().for_each(|line| out += &format!("{}\n", wrapped(line, "", width)));
                out += "\n";
            }
            Block::List(items) => {
                items.iter().for_each(|item| out += &format!("{}\n", wrapped(item, "- ", width)));
                out += "\n";
            }
            Block::Table(grid) => out += &format!("{}\n", table(grid, width)),
        }
    }
    out
}

/// Lines of at most `width` columns, the first behind `first`, the others as far to the right.
fn wrapped(text: &str, first: &str, width: u16) -> String {
    let rest = " ".repeat(first.len());
    let options = textwrap::Options::new(usize::from(width))
        .initial_indent(first)
        .subsequent_indent(&rest)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::fill(text, options)
}

/// A line under the head, and nothing else that is not a figure.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

fn table(grid: &Grid, width: u16) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    table.set_header(&grid.head);
    table.add_rows(&grid.rows);
    for column in table.column_iter_mut().skip(grid.words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    // No word is broken where all words fit.
    let least: Vec<u16> = (0..grid.head.len()).map(|column| longest_word(grid, column)).collect();
    if least.iter().map(|word| word + GAP).sum::<u16>() <= width {
        for (column, word) in table.column_iter_mut().zip(least) {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(word + 2)));
        }
    }
    let title = if grid.title.is_empty() { "" } else { &format!("{}\n", grid.title) };
    let notes: String =
        grid.notes.iter().map(|note| format!("{}\n", wrapped(note, "", width))).collect();
    format!("{title}{table}\n{notes}")
}

/// What a table has between the words of two columns.
const GAP: u16 = 3;

/// The length of the longest word of a column.
fn longest_word(grid: &Grid, column: usize) -> u16 {
    let cells = grid.rows.iter().filter_map(|row| row.get(column)).chain(grid.head.get(column));
    let words = cells.flat_map(|cell| cell.split_whitespace()).map(|word| word.chars().count());
    u16::try_from(words.max().unwrap_or(0)).unwrap_or(u16::MAX / 64)
}

/// For documents.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    for block in &report.blocks {
        match block {
            Block::Heading(heading) => out += &format!("## {heading}\n\n"),
            Block::Text(text) => out += &format!("{text}\n\n"),
            Block::Lines(lines) => out += &format!("{}\n\n", lines.join("  \n")),
            Block::List(items) => {
                items.iter().for_each(|item| out += &format!("- {item}\n"));
                out += "\n";
            }
            Block::Table(grid) => {
                if !grid.title.is_empty() {
                    out += &format!("{}\n\n", grid.title);
                }
                out += &line(&grid.head);
                out += &line(&vec!["---".to_owned(); grid.head.len()]);
                grid.rows.iter().for_each(|row| out += &line(row));
                out += "\n";
                grid.notes.iter().for_each(|note| out += &format!("{note}\n\n"));
            }
        }
    }
    out
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', "<br>")).collect();
    format!("| {} |\n", cells.join(" | "))
}
