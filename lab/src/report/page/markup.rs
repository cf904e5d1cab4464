//! Markup: text that means itself, and the frame of a page.

/// Text that means itself in a page, also in an attribute. What a case file or a machine says is other people's text.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(letter),
            // Also what changes the direction of the text behind it.
            _ if letter.is_control()
                || matches!(letter, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}') =>
            {
                out.push('\u{FFFD}');
            }
            _ => out.push(letter),
        }
    }
    out
}

/// An element with a class; without one where the class is empty.
pub(super) fn element(tag: &str, class: &str, inner: &str) -> String {
    format!("<{tag}{}>{inner}</{tag}>\n", attribute(class))
}

/// An element with nothing but text in it.
pub(super) fn text(tag: &str, class: &str, text: &str) -> String {
    element(tag, class, &escaped(text))
}

/// The heading of a column.
pub(super) fn heading(class: &str, text: &str) -> String {
    format!("<th scope=\"col\"{}>{}</th>\n", attribute(class), escaped(text))
}

/// The attribute for a class, if there is one.
pub(super) fn attribute(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

/// A container that scrolls by itself, also by keyboard, where what is in it is wider than the window.
pub(super) fn scrolling(label: &str, inner: &str) -> String {
    let label = escaped(label);
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{label}\">\n{inner}</div>\n"
    )
}

/// Something that is folded away until it is asked for.
pub(super) fn folded(summary: &str, inner: &str) -> String {
    format!("<details>\n<summary>{}</summary>\n{inner}</details>\n", escaped(summary))
}

/// How a page begins. Its policy is what no record can undo: no script runs, and nothing is fetched.
const HEAD: &str = include_str!("head.html");

/// The marks of plots, each of another shape, drawn around the origin; the others are drawn where they are used.
const MARKS: [&str; 8] = [
    "<circle r=\"4\"/>",
    "<rect x=\"-3.6\" y=\"-3.6\" width=\"7.2\" height=\"7.2\"/>",
    "<path d=\"M0-5 4.6 3.6H-4.6Z\"/>",
    "<path d=\"M0-5.2 5.2 0 0 5.2-5.2 0Z\"/>",
    "<path d=\"M0 5 4.6-3.6H-4.6Z\"/>",
    "<path d=\"M-1.5-5h3v3.5H5v3H1.5V5h-3V1.5H-5v-3h3.5Z\"/>",
    "<path d=\"M-5-2.5 0-5 5-2.5 3 4.5H-3Z\"/>",
    "<path d=\"M-5 0-2.5-4.5H2.5L5 0 2.5 4.5H-2.5Z\"/>",
];

/// How many kinds of marks there are. As many colours are told apart by people who are colour-blind.
pub(super) const STYLES: usize = MARKS.len();

/// A page; `body` is markup.
pub(super) fn page(body: &str) -> String {
    let marks: String =
        (0..).zip(MARKS).map(|(number, mark)| format!("<g id=\"m{number}\">{mark}</g>")).collect();
    format!(
        "{HEAD}<title>siga lab</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <svg class=\"marks\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>{marks}\
         <path id=\"x\" d=\"M-4-4 4 4M-4 4 4-4\"/></defs></svg>\n{body}</body>\n</html>\n",
        include_str!("page.css"),
    )
}
