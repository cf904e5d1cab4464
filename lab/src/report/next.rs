//! What to try next, as commands.

use super::series::{Series, records};
use super::sure::spreads;
use crate::factor::is_against;

/// A spread from which on more trials are worth while.
const WIDE_SPREAD_MIN: f64 = 0.2;

/// Trials from which on a range says something.
const TRIALS_ENOUGH: usize = 5;

pub(super) fn what_next(all: &[Series<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    let records = || records(all);
    let names = all.iter().map(called).collect::<Vec<_>>().join(" ");
    if records().any(|record| record.machine.is_debug) {
        lines.push("cargo build --release, and run it again: these figures mean nothing".into());
    }
    let is_wide = all.iter().flat_map(spreads).any(|(spread, _)| spread > WIDE_SPREAD_MIN);
    let is_short = records().all(|record| (record.trial as usize) < TRIALS_ENOUGH);
    if is_wide || is_short {
        let other = records().find(|record| is_against(&record.factors));
        let other = other.and_then(|record| record.binary.as_ref());
        let against = other.map_or(String::new(), |other| {
            format!(" --against {}", word(&other.path.display().to_string()))
        });
        lines.push(format!(
            "narrower spreads: siga lab run {names} --trials 9 --seconds 1{against}"
        ));
    }
    lines.push("counters of each trial: siga lab run --json FILE writes a line of JSON".into());
    lines
}

/// What a command calls a case: by its name, or by the file that the user named.
pub(super) fn called(series: &Series<'_>) -> String {
    let file = series.records.iter().find_map(|record| record.file.as_deref());
    word(file.unwrap_or(series.name))
}

/// A text as a word of a shell's command.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:=@%+".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record;
    use host::config::Source;

    #[test]
    fn commands_name_the_file_of_a_case_that_was_given_as_one() {
        let next = |file: &str| {
            let line = format!(
                r#"{{"case":"mine","system":"open","trial":1,"factors":{{}},"metrics":{{}},"counters":{{}},"machine":{{}},"run":7,"seconds":1{file}}}"#
            );
            let records = record::parse(&Source::of("r", &line)).unwrap();
            what_next(&Series::all(&records)).remove(0)
        };
        let command =
            |case: &str| format!("narrower spreads: siga lab run {case} --trials 9 --seconds 1");
        assert_eq!(next(""), command("mine"));
        assert_eq!(next(r#","file":"cases/mine.toml""#), command("cases/mine.toml"));
        assert_eq!(next(r#","file":"my 'case'.toml""#), command(r"'my '\''case'\''.toml'"));
    }
}
