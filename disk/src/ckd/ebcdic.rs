//! Names on volumes are EBCDIC.

/// The letters that names have, and their codes: code page 1047.
const LETTERS: &[(u8, &[u8])] = &[
    (0x40, b" "),
    (0x4b, b"."),
    (0x50, b"&"),
    (0x5b, b"$"),
    (0x60, b"-"),
    (0x6d, b"_"),
    (0x7b, b"#@"),
    (0xc1, b"ABCDEFGHI"),
    (0xd1, b"JKLMNOPQR"),
    (0xe2, b"STUVWXYZ"),
    (0xf0, b"0123456789"),
];

/// A letter's code. None if names do not have it.
pub fn encode(letter: u8) -> Option<u8> {
    LETTERS.iter().find_map(|(first, letters)| {
        let at = letters.iter().position(|known| *known == letter)?;
        Some(first + at as u8)
    })
}

/// A name of `BYTES`, filled up with blanks. None if it is too long or has other letters.
pub fn name<const BYTES: usize>(name: &str) -> Option<[u8; BYTES]> {
    let mut bytes = [0x40; BYTES];
    if name.len() > BYTES {
        return None;
    }
    for (target, letter) in bytes.iter_mut().zip(name.bytes()) {
        *target = encode(letter)?;
    }
    Some(bytes)
}

/// Text, without the blanks behind it. What names do not have becomes a question mark.
pub fn text(bytes: &[u8]) -> String {
    let letter = |code: u8| {
        let of = |(first, letters): &(u8, &[u8])| {
            let at = code.checked_sub(*first)?;
            letters.get(usize::from(at)).copied()
        };
        LETTERS.iter().find_map(of).map_or('?', char::from)
    };
    let text: String = bytes.iter().map(|code| letter(*code)).collect();
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_translated_both_ways() {
        assert_eq!(name::<6>("LIN1"), Some([0xd3, 0xc9, 0xd5, 0xf1, 0x40, 0x40]));
        assert_eq!(text(&[0xd3, 0xc9, 0xd5, 0xf1, 0x40, 0x40]), "LIN1");
        assert_eq!((name::<6>("lower"), name::<3>("LONG")), (None, None));
        assert_eq!(text(&[0x00, 0x7b, 0x7c]), "?#@");
    }
}
