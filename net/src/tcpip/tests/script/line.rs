//! The lines of scripts, for whoever runs them.

/// A segment, as far as a script says it.
#[derive(Debug, Default)]
pub(super) struct Line {
    pub(super) flags: u8,
    pub(super) begin: u32,
    pub(super) end: u32,
    pub(super) ack: Option<u32>,
    pub(super) win: Option<u16>,
    pub(super) urg: u16,
    pub(super) offset: Option<u8>,
    /// Of the options in this order: kind, and what is behind its length.
    pub(super) options: Vec<u8>,
    pub(super) mss: Option<u16>,
    pub(super) wscale: Option<u8>,
    pub(super) sack: Option<(u32, u32)>,
    pub(super) has_sack_ok: bool,
    pub(super) times: Option<(u32, u32)>,
}

const LETTERS: [(char, u8); 6] = [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('.', 16), ('U', 32)];

impl Line {
    pub(super) fn parse(words: &mut std::str::SplitWhitespace<'_>) -> Line {
        let mut line = Line::default();
        for letter in words.next().expect("flags").chars() {
            line.flags |= LETTERS.iter().find(|(one, _)| *one == letter).expect("a flag").1;
        }
        (line.begin, line.end) = range(words.next().expect("numbers"));
        while let Some(word) = words.next() {
            match word {
                "sackok" => {
                    line.options.extend([1, 1, 4, 2]);
                    line.has_sack_ok = true;
                    continue;
                }
                word if word.starts_with('#') => break,
                _ => {}
            }
            let value = words.next().expect("a value");
            match word {
                "ack" => line.ack = Some(number(value)),
                "win" => line.win = Some(number(value) as u16),
                "urg" => line.urg = number(value) as u16,
                "offset" => line.offset = Some(number(value) as u8),
                "mss" => {
                    let bytes = number(value) as u16;
                    line.mss = Some(bytes);
                    line.options.extend([2, 4]);
                    line.options.extend(bytes.to_be_bytes());
                }
                "wscale" => {
                    line.wscale = Some(number(value) as u8);
                    line.options.extend([1, 3, 3, number(value) as u8]);
                }
                "times" => line.times = Some(range(value)),
                "sack" => line.sack = Some(range(value)),
                "opt" => line.options.extend(
                    (0..value.len())
                        .step_by(2)
                        .map(|at| u8::from_str_radix(&value[at..at + 2], 16).expect("two digits")),
                ),
                word => panic!("{word}: not known"),
            }
        }
        line
    }
}

pub(super) fn number(word: &str) -> u32 {
    // Below the first number, too.
    word.parse::<i64>().expect("a number") as u32
}

fn range(word: &str) -> (u32, u32) {
    let (begin, end) = word.split_once(':').expect("begin and end");
    (number(begin), number(end))
}

/// The scripts of a file, which have nothing to do with each other: the lines of each that say something, with their numbers.
pub(super) fn scripts(text: &str) -> Vec<Vec<(usize, &str)>> {
    let lines = text.lines().enumerate();
    let lines = lines.map(|(at, line)| (at + 1, line.split('#').next().unwrap_or_default().trim()));
    let lines: Vec<(usize, &str)> = lines.filter(|(_, line)| !line.is_empty()).collect();
    lines.split(|(_, line)| *line == "---").map(<[_]>::to_vec).collect()
}
