//! Reports as text for terminals and as Markdown.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width,
};

use super::{Block, Grid, Report};

/// Columns of text that goes to a file or to another program.
pub const WIDTH: u16 = 100;

/// For terminals of this width.
pub fn text(report: &Report, width: u16) -> String {
    let item = |item: &String| wrapped(item, "- ", width) + "\n";
    let block = |block: &Block| match block {
        Block::Heading(heading) => format!("{heading}\n{}\n", "=".repeat(heading.chars().count())),
        Block::Text(text) => format!("{}\n\n", wrapped(text, "", width)),
        Block::List(items) => items.iter().map(item).collect::<String>() + "\n",
        Block::Table(grid) => table(grid, width) + "\n",
    };
    report.blocks.iter().map(block).collect()
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

/// A table; one that is too wide in parts below each other, each with the columns of words.
fn table(grid: &Grid, width: u16) -> String {
    let least: Vec<u16> = (0..grid.head.len()).map(|column| longest_word(grid, column)).collect();
    let (words, figures) = (0..grid.words, grid.words..grid.head.len());
    let is_wide = |columns: &[usize]| {
        let columns = words.clone().chain(columns.iter().copied());
        columns.map(|column| u32::from(least[column] + GAP)).sum::<u32>() > u32::from(width)
    };
    let mut parts: Vec<Vec<usize>> = vec![Vec::new()];
    for column in figures {
        let with = [parts.last().map_or(&[][..], Vec::as_slice), &[column]].concat();
        match parts.last_mut() {
            Some(part) if part.is_empty() || !is_wide(&with) => part.push(column),
            _ => parts.push(vec![column]),
        }
    }
    let tables: Vec<String> = parts
        .iter()
        .map(|part| {
            let columns: Vec<usize> = words.clone().chain(part.iter().copied()).collect();
            // No word is broken where all words fit.
            let least = (!is_wide(part)).then_some(&*least);
            drawn(grid, &columns, least, width)
        })
        .collect();
    let title = if grid.title.is_empty() { "" } else { &format!("{}\n", grid.title) };
    let notes: String =
        grid.notes.iter().map(|note| format!("{}\n", wrapped(note, "", width))).collect();
    format!("{title}{}\n{notes}", tables.join("\n\n"))
}

/// Some columns of a table, each of at least so many characters.
fn drawn(grid: &Grid, columns: &[usize], least: Option<&[u16]>, width: u16) -> String {
    let of = |cells: &Vec<String>| -> Vec<String> {
        columns.iter().map(|column| cells.get(*column).cloned().unwrap_or_default()).collect()
    };
    let mut table = comfy_table::Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    table.set_header(of(&grid.head));
    table.add_rows(grid.rows.iter().map(of));
    for (column, at) in table.column_iter_mut().zip(columns) {
        if *at >= grid.words {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(least) = least {
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least[*at] + 2)));
        }
    }
    table.to_string()
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
    let block = |block: &Block| match block {
        Block::Heading(heading) => format!("## {heading}\n\n"),
        Block::Text(text) => format!("{}\n\n", text.replace('\n', "  \n")),
        Block::List(items) => {
            items.iter().map(|item| format!("- {item}\n")).collect::<String>() + "\n"
        }
        Block::Table(Grid { title, head, rows, notes, .. }) => {
            let paragraph = |text: &String| format!("{text}\n\n");
            let title: String =
                Some(title).filter(|title| !title.is_empty()).map(paragraph).unwrap_or_default();
            let rule = vec!["---".to_owned(); head.len()];
            let lines: String =
                [head, &rule].into_iter().chain(rows).map(|row| line(row)).collect();
            let notes: String = notes.iter().map(paragraph).collect();
            format!("{title}{lines}\n{notes}")
        }
    };
    report.blocks.iter().map(block).collect()
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> =
        cells.iter().map(|cell| cell.replace('|', "\\|").replace('\n', "<br>")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_that_is_too_wide_is_in_parts_and_no_number_is_broken() {
        let head = ["mode", "I/Os", "service", "busy"].map(str::to_owned).to_vec();
        let row = |mode: &str| [mode, "123456", "0.000426", "98.7"].map(str::to_owned).to_vec();
        let rows = vec![row("command"), row("transport")];
        let grid = Grid { title: "T".into(), head, words: 1, rows, notes: vec!["N".into()] };
        let rule = |columns| "─".repeat(columns);
        let right = format!(
            "T\n mode          I/Os \n{}\n command     123456 \n transport   123456 \n\n \
             mode         service \n{}\n command     0.000426 \n transport   0.000426 \n\n \
             mode        busy \n{}\n command     98.7 \n transport   98.7 \nN\n",
            rule(20),
            rule(22),
            rule(18)
        );
        assert_eq!(table(&grid, 24), right);
        assert_eq!(table(&grid, 100).lines().count(), 6);
        for width in 1..60 {
            assert!(table(&grid, width).contains("T\n"), "{width}");
        }
    }
}
