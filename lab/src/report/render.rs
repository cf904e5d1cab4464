//! Reports as text for terminals and as Markdown.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, TableStyle};

use super::{Block, Grid, Report};

/// For terminals.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for block in &report.blocks {
        match block {
            Block::Heading(heading) => {
                out += &format!("{heading}\n{}\n", "=".repeat(heading.chars().count()));
            }
            Block::Text(text) => out += &format!("{text}\n\n"),
            Block::List(items) => {
                items.iter().for_each(|item| out += &format!("- {item}\n"));
                out += "\n";
            }
            Block::Table(grid) => out += &format!("{}\n", table(grid)),
        }
    }
    out
}

/// A line under the head, and nothing else that is not a figure.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

fn table(grid: &Grid) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(&grid.head);
    table.add_rows(&grid.rows);
    for column in table.column_iter_mut().skip(grid.words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let title = if grid.title.is_empty() { String::new() } else { format!("{}\n", grid.title) };
    format!("{title}{table}\n")
}

/// For documents.
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    for block in &report.blocks {
        match block {
            Block::Heading(heading) => out += &format!("## {heading}\n\n"),
            Block::Text(text) => out += &format!("{text}\n\n"),
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
