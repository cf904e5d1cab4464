//! Reports as a page: one file that needs no other.

use super::{Block, Grid, Report};

const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>siga lab</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75em; margin: 2em auto; padding: 0 1em; color: #222 }
h2 { border-bottom: 1px solid #ccc; margin-top: 2em }
table { border-collapse: collapse; margin: 0.5em 0; font-variant-numeric: tabular-nums }
caption { text-align: left; font-weight: 600; padding: 0.5em 0 }
th, td { text-align: left; vertical-align: top; padding: 0.15em 1em 0.15em 0; white-space: pre-line }
th { border-bottom: 1px solid #888 }
.figure { text-align: right }
.note { color: #555; margin: 0 0 1em }
</style>
</head>
<body>
<h1>siga lab</h1>
";

/// For browsers: the blocks of the other forms.
pub fn html(report: &Report) -> String {
    let blocks: String = report.blocks.iter().map(block).collect();
    format!("{HEAD}{blocks}</body>\n</html>\n")
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading(heading) => format!("<h2>{}</h2>\n", escaped(heading)),
        Block::Text(text) => format!("<p>{}</p>\n", escaped(text)),
        Block::Lines(lines) => {
            let lines: Vec<String> = lines.iter().map(|line| escaped(line)).collect();
            format!("<p>{}</p>\n", lines.join("<br>\n"))
        }
        Block::List(items) => {
            let items: String =
                items.iter().map(|item| format!("<li>{}</li>\n", escaped(item))).collect();
            format!("<ul>\n{items}</ul>\n")
        }
        Block::Table(grid) => table(grid),
    }
}

fn table(grid: &Grid) -> String {
    let caption = match grid.title.as_str() {
        "" => String::new(),
        title => format!("<caption>{}</caption>\n", escaped(title)),
    };
    let row = |cells: &[String], tag: &str| {
        let cell = |(index, cell): (usize, &String)| {
            let class = if index < grid.words { "" } else { " class=\"figure\"" };
            format!("<{tag}{class}>{}</{tag}>", escaped(cell))
        };
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head = row(&grid.head, "th");
    let rows: String = grid.rows.iter().map(|cells| row(cells, "td")).collect();
    let notes: String = grid
        .notes
        .iter()
        .map(|note| format!("<p class=\"note\">{}</p>\n", escaped(note)))
        .collect();
    format!("<table>\n{caption}<thead>\n{head}</thead>\n<tbody>\n{rows}</tbody>\n</table>\n{notes}")
}

/// Text that means itself in a page.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
