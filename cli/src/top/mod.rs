//! `siga top`: what paths, LANs, stacks, devices at adapters and disks are doing now.

mod rows;

use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use comfy_table::Table;
use os::signals::HeldSignals;
use siga::host::Observer;

use self::rows::{Row, rows};
use crate::ending::end_in_time;
use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json, table};
use crate::socket::Socket;

/// Show what paths, LANs, stacks, devices at adapters and disks are doing: rates, polls, doorbells, spinning, times of channel programs
///
/// Counters are read from boards while guests run: watching costs them nothing. Rates are those between two samples; k, M and G stand
/// for thousands, millions and thousands of millions. Runs until Ctrl-C; the exit code is 0 then.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Seconds between two samples
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Take this many samples and end
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    socket: Socket,
}

pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number"))?;
    if (0.05..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err(format!("{text} seconds: must be 0.05 to 3600"))
    }
}

/// Shows what is going on until it is stopped.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let held = HeldSignals::hold().map_err(Outcome::no)?;
    end_in_time(&held, Duration::ZERO, 0).map_err(Outcome::no)?;
    let observer = Observer::attach(arguments.socket.path()?).map_err(Outcome::no)?;
    let mut before = observer.query().map_err(Outcome::no)?;
    let is_terminal = std::io::stdout().is_terminal() && !arguments.output.json;
    let mut left = arguments.count.unwrap_or(u64::MAX);
    while left > 0 {
        thread::sleep(Duration::from_secs_f64(arguments.seconds));
        let now = observer.query().map_err(Outcome::no)?;
        let rows = rows(&before, &now);
        if arguments.output.json {
            rows.iter().try_for_each(print_json)?;
        } else {
            // To the upper left, and clear what was there.
            let clear = if is_terminal { "\x1b[H\x1b[2J" } else { "" };
            let (guests, paths) = (now.guests.len(), now.paths.len());
            let (guests, paths) = (counted(guests, "guest"), counted(paths, "path"));
            let sections: String =
                sections(&rows).iter().map(|section| format!("\n{section}\n")).collect();
            print(format!("{clear}{guests}, {paths}{}", sections.trim_end()))?;
        }
        before = now;
        left -= 1;
    }
    Ok(())
}

/// A kind of rows: its heads, from which column on there are numbers, and its cells of a row.
type Section = (&'static [&'static str], usize, fn(&Row) -> Option<Vec<String>>);

/// In 100 columns, whatever the names and numbers are.
const SECTIONS: &[Section] = &[
    (
        &[
            "path",
            "from",
            "to",
            "messages/s",
            "bytes/s",
            "polls/s",
            "empty/s",
            "rings/s",
            "sleeps/s",
            "spinning %",
            "lent MiB",
        ],
        3,
        |row| {
            let Row::Path(path) = row else { return None };
            Some(vec![
                path.path.to_string(),
                word(&path.from),
                word(&path.to),
                rate(path.messages_per_s),
                rate(path.bytes_per_s),
                rate(path.polls_per_s),
                rate(path.polls_empty_per_s),
                rate(path.rings_per_s),
                rate(path.sleeps_per_s),
                fine(path.spinning_percent),
                fine(path.lent_bytes as f64 / f64::from(1 << 20)),
            ])
        },
    ),
    (
        &[
            "lan",
            "guest",
            "sent/s",
            "bytes/s",
            "received/s",
            "bytes/s",
            "given back/s",
            "dropped/s",
        ],
        2,
        |row| {
            let Row::Lan(member) = row else { return None };
            Some(vec![
                word(&member.lan),
                word(&member.guest),
                rate(member.frames_sent_per_s),
                rate(member.bytes_sent_per_s),
                rate(member.frames_received_per_s),
                rate(member.bytes_received_per_s),
                rate(member.given_back_per_s),
                rate(member.dropped_per_s),
            ])
        },
    ),
    (
        &[
            "stack",
            "lan",
            "connections",
            "opened/s",
            "failed/s",
            "resent/s",
            "dropped/s",
            "buffers",
            "of",
        ],
        2,
        |row| {
            let Row::Stack(stack) = row else { return None };
            Some(vec![
                word(&stack.stack),
                word(&stack.lan),
                rate(stack.connections as f64),
                rate(stack.opened_per_s),
                rate(stack.failed_per_s),
                rate(stack.resent_per_s),
                rate(stack.dropped_per_s),
                rate(stack.buffers_in_use as f64),
                rate(stack.buffers_in_use_max as f64),
            ])
        },
    ),
    (
        &[
            "adapter",
            "carrier",
            "guest",
            "in/s",
            "bytes/s",
            "out/s",
            "bytes/s",
            "interrupts/s",
            "dropped/s",
            "adapter %",
        ],
        3,
        |row| {
            let Row::Device(device) = row else { return None };
            Some(vec![
                word(&device.adapter),
                word(device.carrier.as_deref().unwrap_or("-")),
                word(&device.guest),
                rate(device.packets_in_per_s),
                rate(device.bytes_in_per_s),
                rate(device.packets_out_per_s),
                rate(device.bytes_out_per_s),
                rate(device.interrupts_per_s),
                rate(device.dropped_per_s),
                fine(device.adapter_percent),
            ])
        },
    ),
    (
        &["control unit", "volume", "state", "hits/s", "misses/s", "cached tracks", "of", "pinned"],
        3,
        |row| {
            let Row::Volume(volume) = row else { return None };
            Some(vec![
                word(&volume.unit),
                word(&volume.volume),
                volume.state.to_string(),
                rate(volume.hits_per_s),
                rate(volume.misses_per_s),
                rate(f64::from(volume.cache_tracks)),
                rate(f64::from(volume.cache_tracks_max)),
                rate(f64::from(volume.cache_tracks_pinned)),
            ])
        },
    ),
    (
        &[
            "disk of",
            "device",
            "control unit",
            "starts/s",
            "pending us",
            "connect us",
            "disconnect us",
        ],
        3,
        |row| {
            let Row::Disk(disk) = row else { return None };
            let time = |time: Option<f64>| time.map_or("-".to_owned(), fine);
            Some(vec![
                word(&disk.guest),
                word(&disk.device),
                word(&disk.unit),
                rate(disk.starts_per_s),
                time(disk.pending_us),
                time(disk.connect_us),
                time(disk.disconnect_us),
            ])
        },
    ),
];

/// The tables of those kinds of which there are any.
fn sections(rows: &[Row]) -> Vec<Table> {
    let draw = |(heads, numbers_from, cells): &Section| {
        let mut table = table(heads, *numbers_from);
        for (number, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, u16::from(number + 1 < heads.len())));
        }
        table.add_rows(rows.iter().filter_map(cells));
        (table.row_count() > 0).then_some(table)
    };
    SECTIONS.iter().filter_map(draw).collect()
}

/// Letters of a name that are shown. Guests and LANs have eight; what control units show is any text.
const WORD_LETTERS: usize = 12;

/// A name, cut and without what would change the terminal.
fn word(name: &str) -> String {
    let plain = |letter: char| if letter.is_control() { '?' } else { letter };
    match name.chars().count() > WORD_LETTERS {
        true => name.chars().take(WORD_LETTERS - 1).map(plain).chain(['…']).collect(),
        false => name.chars().map(plain).collect(),
    }
}

/// A number in at most five letters: `9999`, `12.3k`, `120M`.
fn rate(number: f64) -> String {
    const NAMES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    if number < 9999.5 {
        return format!("{number:.0}");
    }
    let (mut number, mut name) = (number, 0);
    while number >= 999.5 && name + 1 < NAMES.len() {
        (number, name) = (number / 1e3, name + 1);
    }
    let digits = if number < 99.95 { 1 } else { 0 };
    format!("{number:.digits$}{}", NAMES[name])
}

/// A number with a digit behind the point, while it is small.
fn fine(number: f64) -> String {
    if number < 999.95 { format!("{number:.1}") } else { rate(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_whatever_they_are() {
        for (number, text) in [
            (0.0, "0"),
            (0.4, "0"),
            (9_999.0, "9999"),
            (9_999.6, "10.0k"),
            (12_345.0, "12.3k"),
            (99_960.0, "100k"),
            (999_400.0, "999k"),
            (999_600.0, "1.0M"),
            (2.5e9, "2.5G"),
            (1.8e19, "18.0E"),
            (1.8e24, "1800000E"),
        ] {
            assert_eq!(rate(number), text);
        }
        assert_eq!((fine(3.25).as_str(), fine(1e6).as_str()), ("3.2", "1.0M"));
    }

    #[test]
    fn names_are_cut_and_harmless() {
        assert_eq!(word("CLIENT"), "CLIENT");
        assert_eq!(word("\x1b[2Jabcdefghijkl"), "?[2Jabcdefg…");
    }

    #[test]
    fn every_section_fits_a_hundred_columns() {
        let (before, now) = rows::tests::large();
        let rows = rows(&before, &now);
        let sections = sections(&rows);
        assert_eq!(sections.len(), SECTIONS.len());
        for section in sections {
            let section = section.to_string();
            let widest = section.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(widest <= 100, "{widest}:\n{section}");
        }
    }
}
