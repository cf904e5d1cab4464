//! The words of a profile. It is free-form: blanks and ends of lines separate words, and a statement may continue over lines.

use std::ops::Range;

/// Letters of a word that a message repeats, at most.
const SHOWN_LETTERS_MAX: usize = 40;

/// A word, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<'a> {
    /// Without its quotes.
    pub(super) text: &'a str,
    /// In bytes of the profile.
    pub(super) span: Range<usize>,
    /// No other word stands before it in its line.
    pub(super) is_first: bool,
    /// It stood in quotes, and so is no keyword.
    pub(super) is_quoted: bool,
}

impl Word<'_> {
    /// Returns true if the word is this keyword. Lower-case letters at the end of `keyword` may be left out: `DEV` and `DEVICE` are `DEVice`.
    pub(super) fn is(&self, keyword: &str) -> bool {
        let least = keyword.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).len();
        let length = self.text.len();
        let beginning = keyword.get(..length).filter(|_| length >= least && !self.is_quoted);
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(self.text))
    }

    /// Returns the word as messages repeat it: in capital letters, and cut if it is long. A text in quotes may have control characters, which a
    /// terminal would obey.
    pub(super) fn shown(&self) -> String {
        let mut letters = self.text.chars();
        let shown = letters.by_ref().take(SHOWN_LETTERS_MAX);
        let shown: String =
            shown.map(|letter| if letter.is_control() { '?' } else { letter }).collect();
        let dots = if letters.next().is_some() { "..." } else { "" };
        format!("{}{dots}", shown.to_uppercase())
    }
}

/// The words of a profile, and what is wrong already among them.
#[derive(Debug, Default)]
pub(super) struct Words<'a> {
    pub(super) words: Vec<Word<'a>>,
    /// Quotes that no second quote in the line ends. The rest of the line is no word.
    pub(super) unended: Vec<Range<usize>>,
    /// Beginnings of lines that are comments elsewhere: `*`, `#`, `//`, `/*`. These lines have no words.
    pub(super) comments: Vec<Range<usize>>,
}

/// Takes a profile apart.
///
/// A semicolon outside quotes begins a comment, which ends with the line. Control characters separate words as blanks do, but in quotes.
pub(super) fn words(text: &str) -> Words<'_> {
    let (mut found, mut start) = (Words::default(), 0);
    for line in text.split('\n') {
        let (mut rest, mut is_first) = (line, true);
        loop {
            rest = rest.trim_start_matches(is_blank);
            let at = start + line.len() - rest.len();
            let first = match rest.chars().next() {
                None | Some(';') => break,
                Some(first) => first,
            };
            let is_quoted = matches!(first, '"' | '\'');
            let (text, bytes) = if is_quoted {
                let Some(inner) = rest[1..].split_once(first).map(|(inner, _)| inner) else {
                    found.unended.push(at..start + line.len());
                    break;
                };
                (inner, inner.len() + 2)
            } else {
                let end = rest.find(|letter| is_blank(letter) || letter == ';');
                let word = &rest[..end.unwrap_or(rest.len())];
                (word, word.len())
            };
            let span = at..at + bytes;
            if is_first && !is_quoted && is_comment(text) {
                found.comments.push(span);
                break;
            }
            found.words.push(Word { text, span, is_first, is_quoted });
            (rest, is_first) = (&rest[bytes..], false);
        }
        start += line.len() + 1;
    }
    found
}

/// Returns true if a word is a mark by which other languages begin a comment. A name may begin with `#`, but not be it.
fn is_comment(word: &str) -> bool {
    matches!(word, "*" | "#") || ["**", "/*", "//"].iter().any(|mark| word.starts_with(mark))
}

fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        words(text).words.into_iter().map(|word| word.text).collect()
    }

    #[test]
    fn comments_end_with_the_line_and_quotes_keep_semicolons() {
        assert_eq!(texts("A B;C\r\n ; D\n\tE \"F;G h\" 'I'"), ["A", "B", "E", "F;G h", "I"]);
        assert_eq!(texts("MTU 4096 REPL;CHG\nENDROUTES ;"), ["MTU", "4096", "REPL", "ENDROUTES"]);
        assert_eq!(texts("A\u{1b}[31mB\0C"), ["A", "[31mB", "C"], "no control characters");
        assert_eq!(texts(""), [""; 0]);
        let Words { words, unended, .. } = words("A 'B C\nD 'E' 'F");
        let first: Vec<bool> = words.iter().map(|word| word.is_first).collect();
        assert_eq!(first, [true, true, false]);
        assert_eq!(unended, [2..6, 13..15]);
        assert_eq!((words[2].span.clone(), words[2].is_quoted), (9..12, true));
    }

    #[test]
    fn comments_of_other_languages_are_no_words() {
        let found = words("* DEVICE A\n//B\n C * D\n#1 E\n\t# F");
        let texts: Vec<&str> = found.words.iter().map(|word| word.text).collect();
        assert_eq!(
            (texts, found.comments),
            (vec!["C", "*", "D", "#1", "E"], vec![0..1, 11..14, 28..29])
        );
    }

    #[test]
    fn keywords_may_be_short_where_the_table_says_so() {
        let is = |word: &str, keyword: &str| words(word).words[0].is(keyword);
        assert!(is("DEVICE", "DEVice") && is("dev", "DEVice") && is("Devi", "DEVice"));
        assert!(!is("DE", "DEVice") && !is("DEVICES", "DEVice") && !is("'DEVICE'", "DEVice"));
        assert!(is("802.3", "802.3") && !is("802", "802.3") && !is("é", "E"));
    }

    #[test]
    fn long_words_are_cut_where_they_are_repeated() {
        let long = "x".repeat(41);
        assert_eq!(words(&long).words[0].shown(), format!("{}...", "X".repeat(40)));
        assert_eq!(words(&long[1..]).words[0].shown(), "X".repeat(40));
        assert_eq!(words("'a\u{1b}[31m'").words[0].shown(), "A?[31M");
    }
}
