//! Words that were probably meant. Every error about an unknown word asks here: of a file, of a command, of a LAN or a guest.

use std::fmt::Display;

/// Words that are suggested at once, at most.
const NEAR_MAX: usize = 3;

/// Bytes of the longest word that is compared: the time grows with the product of the lengths.
const WORD_BYTES_MAX: usize = 64;

/// Letters from which on the beginning of a word stands for the word.
const BEGINNING_LETTERS: usize = 3;

/// The words of `known` that `word` was probably meant to be, in the order of `known`: three at most, and none if none is near.
///
/// A word is near if at most a third of its letters are wrong, or one letter of a short word. Two letters that changed places are
/// one error, and capital letters are none. The nearest are returned; if no word is near, those that begin with `word`, or whose first
/// parts between hyphens are near.
pub fn near<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return Vec::new();
    }
    let word = word.to_lowercase();
    let letters = word.chars().count();
    let parts = word.split('-').count();
    let is_similar = |other: &str| {
        let errors = strsim::damerau_levenshtein(&word, other);
        let longer = letters.max(other.chars().count());
        (errors, errors <= (longer / 3).max(1) && errors < longer)
    };
    let mut found: Vec<(bool, usize, &str)> = Vec::new();
    for other in known.into_iter().filter(|other| other.len() <= WORD_BYTES_MAX) {
        let small = other.to_lowercase();
        let (errors, is_whole) = is_similar(&small);
        let first = small.splitn(parts + 1, '-').take(parts).collect::<Vec<_>>().join("-");
        let is_beginning =
            letters >= BEGINNING_LETTERS && (small.starts_with(&word) || is_similar(&first).1);
        let is_new = found.iter().all(|(_, _, known)| *known != other);
        if is_new && (is_whole || is_beginning) {
            found.push((!is_whole, errors, other));
        }
    }
    // Those that are as near as the nearest; of beginnings, all.
    let least =
        found.iter().filter(|(is_beginning, ..)| !is_beginning).map(|(_, errors, _)| *errors).min();
    let nearest = found.into_iter().filter(|(is_beginning, errors, _)| match least {
        Some(least) => !is_beginning && *errors == least,
        None => true,
    });
    nearest.map(|(_, _, other)| other).take(NEAR_MAX).collect()
}

/// The question after such words: `did you mean a, b or c?`. None if there are none.
pub fn question<T: Display>(words: &[T]) -> Option<String> {
    let (last, others) = words.split_last()?;
    let others: Vec<String> = others.iter().map(T::to_string).collect();
    Some(match others.is_empty() {
        true => format!("did you mean {last}?"),
        false => format!("did you mean {} or {last}?", others.join(", ")),
    })
}

/// Suggests a word where one of several must be written: those that are spelled alike, or else all.
pub fn right(word: &str, known: &[impl AsRef<str>]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let asked = question(&near(word, known.iter().copied()));
    asked.unwrap_or_else(|| format!("must be one of {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_come_first_and_strange_ones_not_at_all() {
        let fields = ["name", "range", "members", "member", "capture"];
        assert_eq!(near("memebers", fields), ["members"]);
        assert_eq!(near("nmae", fields), ["name"]);
        assert_eq!(near("colour", fields), [""; 0]);
        assert_eq!(near("lna", ["lan", "path"]), ["lan"]);
        assert_eq!(near("server", ["CLIENT", "SERVER"]), ["SERVER"]);
        assert_eq!(near("hs9", ["hs0", "hs1", "prod"]), ["hs0", "hs1"]);
        assert_eq!(near("B", ["A"]), [""; 0], "nothing of it is right");
        let cases = ["message-stream", "message-exchange", "tcp-rr", "border-64", "border"];
        assert_eq!(near("bordr", cases), ["border"]);
        assert_eq!(near("message", cases), ["message-stream", "message-exchange"]);
        assert_eq!(near("mesage", cases), ["message-stream", "message-exchange"]);
        assert_eq!(near("--warn", ["--quick", "--warm-up"]), ["--warm-up"]);
        assert_eq!(near("", cases), [""; 0]);
        assert_eq!(near(&"x".repeat(1 << 20), [&*"x".repeat(1 << 20)]), [""; 0]);
    }

    #[test]
    fn right_asks_or_lists() {
        assert_eq!(right("tow", &["open", "two"]), "did you mean two?");
        assert_eq!(right("seven", &["open", "two"]), "must be one of open, two");
        assert_eq!(question(&["a", "b", "c"]).unwrap(), "did you mean a, b or c?");
        assert_eq!(question::<&str>(&[]), None);
    }
}
