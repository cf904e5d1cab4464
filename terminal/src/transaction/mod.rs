//! A program with one screen, such as a mainframe has many of: an account is asked for, its entries are shown.
//!
//! ```text
//!  SIGA ACCOUNT INQUIRY
//!  the remark of the question
//!  ACCOUNT ===> 0000004711
//!  REMARK  ===>
//!  ACCOUNT 0000004711 HAS 17 ENTRIES
//!  01 2013-08-14 09:41:07 PAY  RENT                     4711000815        1,250.00
//!  ..
//!  ENTER = ASK   PF3 = END   CLEAR = END
//! ```
//!
//! The entries follow from the account, so that whoever asks can verify the answer to the last byte ([`answer`]). An answer is as long as is asked for, by the number of entries
//! and a line behind them.

mod session;

use crate::client::Client;
use crate::ebcdic;
use crate::stream::{Aid, Attribute, Display, ROWS, StreamError, Write};

pub use session::{Ending, Session, SessionOptions};

/// Digits of an account.
pub const ACCOUNT_DIGITS: usize = 10;
/// Letters of the longest remark.
pub const REMARK_LETTERS_MAX: usize = 60;

/// Bytes of the data stream of an answer, at least: one entry is there, whatever the remark.
pub const ANSWER_BYTES_MIN: usize = 440;
/// The most: the screen is full.
pub const ANSWER_BYTES_MAX: usize = 2100;

/// Bytes of a question with TN3270E: a header, ENTER, the cursor, two fields with their addresses, and the end of the record. The letters of the remark come on top.
pub const QUESTION_BYTES: usize = 5 + 1 + 2 + 3 + ACCOUNT_DIGITS + 3 + 2;

/// Bytes around the data stream of an answer with TN3270E: a header, and the end of the record.
pub const AROUND_BYTES: usize = 5 + 2;

const REMARK_ROW: usize = 1;
const ACCOUNT_ROW: usize = 2;
const REMARK_INPUT_ROW: usize = 3;
const MESSAGE_ROW: usize = 4;
const FIRST_ENTRY_ROW: usize = 5;
const LAST_ROW: usize = ROWS - 1;
/// Entries on a screen, at most.
const ENTRIES_MAX: usize = LAST_ROW - FIRST_ENTRY_ROW;

/// Bytes of an order that goes to a place and begins a field there.
const PLACE_BYTES: usize = 5;

/// Where each column of an entry begins, and its letters.
const ENTRY: [(usize, usize); 7] =
    [(0, 2), (3, 10), (14, 8), (23, 4), (28, 24), (53, 10), (64, 14)];

const ENTRY_BYTES: usize = {
    let (mut bytes, mut at) = (0, 0);
    while at < ENTRY.len() {
        bytes += PLACE_BYTES + ENTRY[at].1;
        at += 1;
    }
    bytes
};

/// Letters of the longest line behind the entries, which is within a row; and what it is drawn with.
const LINE_LETTERS_MAX: usize = 79;
const DASH: u8 = 0x60;

/// The screen without an answer.
pub fn form() -> Write {
    let mut write = blank();
    write.at(MESSAGE_ROW, 0).field(Attribute::BRIGHT);
    write.text("TYPE THE NUMBER OF AN ACCOUNT AND PRESS ENTER");
    write
}

/// All but the message, and what stands in an answer.
fn blank() -> Write {
    let mut write = Write::erase();
    write.at(0, 0).field(Attribute::BRIGHT).text("SIGA ACCOUNT INQUIRY");
    write.at(ACCOUNT_ROW, 0).field(Attribute::TEXT).text("ACCOUNT ===>");
    write.field(Attribute::DIGITS).cursor();
    write.at(ACCOUNT_ROW, 14 + ACCOUNT_DIGITS).field(Attribute::SKIPPED);
    write.at(REMARK_INPUT_ROW, 0).field(Attribute::TEXT).text("REMARK  ===>");
    write.field(Attribute::INPUT);
    write.at(REMARK_INPUT_ROW, 14 + REMARK_LETTERS_MAX).field(Attribute::SKIPPED);
    write.at(LAST_ROW, 0).field(Attribute::SKIPPED);
    write.text("ENTER = ASK   PF3 = END   CLEAR = END");
    write
}

/// Replaces the message alone.
fn message(text: &str) -> Write {
    let mut write = Write::change();
    write.at(MESSAGE_ROW, 0).field(Attribute::BRIGHT).text(text);
    write.fill_to(FIRST_ENTRY_ROW, 0, ebcdic::BLANK);
    write
}

/// The answer to a question, of `answer_bytes` of the data stream. A remark is cut to its longest, and `answer_bytes` is brought between
/// [`ANSWER_BYTES_MIN`] and [`ANSWER_BYTES_MAX`].
pub fn answer(account: u64, remark: &str, answer_bytes: usize) -> Write {
    let account = account % 10u64.pow(ACCOUNT_DIGITS as u32);
    let mut write = blank();
    let end = remark.char_indices().nth(REMARK_LETTERS_MAX).map_or(remark.len(), |(at, _)| at);
    write.at(REMARK_ROW, 0).field(Attribute::TEXT).text(&remark[..end]);
    write.at(MESSAGE_ROW, 0).field(Attribute::BRIGHT).text("ACCOUNT ");
    write.letters(&digits::<ACCOUNT_DIGITS>(account)).text(" HAS ");
    const REST: &str = "00 ENTRIES";
    let answer_bytes = answer_bytes.clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX);
    let room = answer_bytes.saturating_sub(write.bytes().len() + REST.len());
    let entries = (room / ENTRY_BYTES).min(ENTRIES_MAX);
    let rest = room - entries * ENTRY_BYTES;
    // What no entry fills is a line behind them, and blanks of the message where there is no room for a line.
    let has_line = entries < ENTRIES_MAX && rest > PLACE_BYTES;
    let line = if has_line { (rest - PLACE_BYTES).min(LINE_LETTERS_MAX) } else { 0 };
    let blanks = rest - line - if has_line { PLACE_BYTES } else { 0 };
    write.letters(&digits::<2>(entries as u64)).text(&REST[2..]);
    write.letters(&[ebcdic::BLANK; 79][..blanks.min(79)]);
    for number in 0..entries {
        put_entry(&mut write, account, number);
    }
    if has_line {
        write.at(FIRST_ENTRY_ROW + entries, 0).field(Attribute::TEXT);
        write.letters(&[DASH; LINE_LETTERS_MAX][..line]);
    }
    write
}

fn put_entry(write: &mut Write, account: u64, number: usize) {
    const KINDS: [&str; 4] = ["PAY ", "DEP ", "FEE ", "INT "];
    const TEXTS: [&str; 4] = [
        "RENT                    ",
        "SALARY                  ",
        "CARD 4711, TRAVEL       ",
        "INTEREST OF THE QUARTER ",
    ];
    let mut random = (account + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number as u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) % bound
    };
    let row = FIRST_ENTRY_ROW + number;
    let mut column = ENTRY.iter();
    let mut next = |write: &mut Write| {
        let (column, _) = column.next().expect("an entry has these columns");
        write.at(row, *column).field(Attribute::TEXT);
    };
    next(write);
    write.letters(&digits::<2>(number as u64 + 1));
    next(write);
    write.letters(&digits::<4>(2000 + below(26))).text("-").letters(&digits::<2>(1 + below(12)));
    write.text("-").letters(&digits::<2>(1 + below(28)));
    next(write);
    write.letters(&digits::<2>(below(24))).text(":").letters(&digits::<2>(below(60)));
    write.text(":").letters(&digits::<2>(below(60)));
    next(write);
    let what = below(4) as usize;
    write.text(KINDS[what]);
    next(write);
    write.text(TEXTS[what]);
    next(write);
    write.letters(&digits::<10>(below(10_000_000_000)));
    next(write);
    write.text("    ").letters(&digits::<3>(100 + below(900))).text(",");
    write.letters(&digits::<3>(below(1000))).text(".").letters(&digits::<2>(below(100)));
}

/// The last digits of a number.
fn digits<const COUNT: usize>(mut number: u64) -> [u8; COUNT] {
    let mut letters = [0xf0; COUNT];
    for letter in letters.iter_mut().rev() {
        *letter = 0xf0 | (number % 10) as u8;
        number /= 10;
    }
    letters
}

/// What to do after a key.
#[derive(Clone, Debug)]
enum Next {
    /// Shows this. True if it answers a question.
    Show(Write, bool),
    /// The user has left.
    End,
}

/// What the program does when a key was pressed.
fn on_key(aid: Aid, display: &Display, answer_bytes: usize) -> Next {
    match aid {
        Aid::Clear | Aid::Pf(3) => return Next::End,
        Aid::Enter => {}
        _ => return Next::Show(message("THIS KEY DOES NOTHING HERE"), false),
    }
    let mut typed = display.inputs().map(|field| display.text_of(field));
    let (account, remark) = (typed.next().unwrap_or_default(), typed.next().unwrap_or_default());
    let is_number = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
    match account.parse::<u64>() {
        Ok(number) if is_number => Next::Show(answer(number, &remark, answer_bytes), true),
        _ => Next::Show(message("AN ACCOUNT HAS 1 TO 10 DIGITS"), false),
    }
}

/// Types a question into the form, and sends it. False if the keyboard is locked.
///
/// # Errors
/// [`StreamError`]: the screen is not that of this program, or the remark is too long.
pub fn ask(client: &mut Client, account: u64, remark: &str) -> Result<bool, StreamError> {
    if client.display().is_locked() {
        return Ok(false);
    }
    client.type_in(0, &format!("{account:010}"))?;
    client.type_in(1, remark)?;
    Ok(client.press(Aid::Enter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(write: &Write) -> Display {
        let mut display = Display::default();
        display.write(write.bytes()).unwrap();
        display
    }

    #[test]
    fn answer_is_as_long_as_is_asked_for_and_within_the_screen() {
        for remark_letters in [0, 1, 34, REMARK_LETTERS_MAX] {
            let remark = "R".repeat(remark_letters);
            for bytes in ANSWER_BYTES_MIN..=ANSWER_BYTES_MAX {
                let write = answer(4711, &remark, bytes);
                assert_eq!(write.bytes().len(), bytes, "{remark_letters}");
                let display = shown(&write);
                assert_eq!(display.inputs().count(), 2, "{bytes}");
                assert_eq!(display.row(LAST_ROW), " ENTER = ASK   PF3 = END   CLEAR = END");
            }
        }
        assert_eq!(answer(1, "", 0).bytes().len(), ANSWER_BYTES_MIN);
        assert_eq!(answer(1, "", usize::MAX).bytes().len(), ANSWER_BYTES_MAX);
    }

    #[test]
    fn answer_says_what_was_asked() {
        let display = shown(&answer(4711, "FOR THE AUDIT", 2000));
        assert_eq!(display.row(0), " SIGA ACCOUNT INQUIRY");
        assert_eq!(display.row(1), " FOR THE AUDIT");
        assert_eq!(display.row(4), " ACCOUNT 0000004711 HAS 17 ENTRIES");
        assert!(display.row(5).starts_with(" 01 20"), "{}", display.row(5));
        let fields: Vec<_> = display.inputs().map(|field| field.cells).collect();
        assert_eq!(fields, [ACCOUNT_DIGITS, REMARK_LETTERS_MAX]);
        assert_eq!(display.cursor(), display.inputs().next().unwrap().at);
        assert_ne!(
            answer(1, "", 2000).bytes(),
            answer(2, "", 2000).bytes(),
            "entries follow from the account"
        );
    }

    #[test]
    fn keys_and_what_is_no_account_are_told_so() {
        let with = |account: &str| {
            let mut display = shown(&form());
            let at = display.inputs().next().unwrap().at;
            display.type_at(at, account).unwrap();
            display
        };
        let row = |next| match next {
            Next::Show(write, is_answer) => {
                let mut display = with("");
                display.write(write.bytes()).unwrap();
                (display.row(4), is_answer)
            }
            Next::End => ("end".to_owned(), false),
        };
        assert!(row(on_key(Aid::Enter, &with("77"), 500)).1);
        for wrong in ["", "7A", "-1", "+1"] {
            let (text, is_answer) = row(on_key(Aid::Enter, &with(wrong), 500));
            assert_eq!((&*text, is_answer), (" AN ACCOUNT HAS 1 TO 10 DIGITS", false), "{wrong}");
        }
        assert_eq!(row(on_key(Aid::Pf(4), &with("7"), 500)).0, " THIS KEY DOES NOTHING HERE");
        assert_eq!(row(on_key(Aid::Pf(3), &with("7"), 500)).0, "end");
        assert_eq!(row(on_key(Aid::Clear, &Display::default(), 500)).0, "end");
    }
}
