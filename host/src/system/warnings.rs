//! Warnings about settings that are probably mistakes: names of guests that do not exist, and the like. A host serves such a system all the
//! same; `siga up` prints these warnings, and `siga up --check` fails on them.

use toml::Spanned;

use super::{Pattern, Written};
use crate::config::{FileError, Source};
use crate::near::{near, question};

/// The names and patterns under which guests can attach, and the source that says so.
pub(super) struct Guests<'a> {
    source: &'a Source,
    patterns: Vec<Pattern>,
}

impl Guests<'_> {
    /// Warns if no guest can have the name, or any of the names, that are written in `field`.
    pub(super) fn warn(&self, field: &str, text: &Spanned<String>) -> Option<FileError> {
        // What is no name is an error, which is found elsewhere.
        let pattern = Pattern::parse(text.get_ref())?;
        if self.patterns.iter().any(|guest| guest.has_names_of(&pattern)) {
            return None;
        }
        let what = format!("{field} = {:?}: no [[guest]] has such a name", text.get_ref());
        let names: Vec<String> = self.patterns.iter().map(ToString::to_string).collect();
        let meant = near(text.get_ref(), names.iter().map(String::as_str));
        let right = question(&meant);
        let right =
            right.unwrap_or_else(|| "must be described as a [[guest]], or be left out".into());
        Some(self.source.error(text.span(), what, right))
    }
}

/// All warnings about a file, in the order of its tables. What is wrong there is no matter here.
pub(super) fn warnings(source: &Source, written: &Written) -> Vec<FileError> {
    let texts = written.guest.iter().map(|guest| guest.name.get_ref().as_str());
    let unit = written.control_unit.as_ref().and_then(|unit| unit.name());
    let unit = unit.unwrap_or(super::volume::CONTROL_UNIT);
    let unit = (!written.volume.is_empty()).then_some(unit);
    let machines = written.tcpip.iter().map(|machine| machine.name());
    let adapters: Vec<String> =
        written.osa.keys().map(|name| name.get_ref().to_ascii_uppercase()).collect();
    let servers = adapters.iter().map(String::as_str);
    let names = texts.chain(unit).chain(machines).chain(servers);
    let patterns = names.filter_map(Pattern::parse).collect();
    let guests = Guests { source, patterns };
    let mut warnings = Vec::new();
    if written.guest.is_empty() {
        let right = "must have a [[guest]], or nobody can attach";
        warnings.push(source.error(0..0, "no guest is described", right));
    } else {
        let connect = written.guest.iter().flat_map(|guest| &guest.connect);
        warnings.extend(connect.filter_map(|text| guests.warn("connect", text)));
        warnings.extend(written.lan.iter().flat_map(|lan| lan.warnings(source, &guests)));
        warnings.extend(written.tcpip.iter().flat_map(|machine| machine.warnings(&guests)));
        warnings.extend(written.osa.values().flat_map(|one| one.warnings(source, &guests)));
    }
    let ends = written.line.iter().flat_map(|line| line.unused_ends(source, &written.tcpip));
    warnings.extend(ends);
    warnings.sort_by_key(|warning| warning.line);
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::System;
    use crate::config::Source;

    fn warnings(text: &str) -> Vec<String> {
        let system = System::parse(&Source::of("s.toml", text)).unwrap();
        system.warnings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_that_no_guest_has_are_warned_of() {
        let found = warnings(
            r#"[[guest]]
name = "SERVER"
[[guest]]
name = "CLI*"
connect = ["SERVR", "NOSUCH", "CLIENT", "C*", "S*"]
[[lan]]
name = "hs0"
range = "10.9.0.7/24"
members = ["SERVER", "CLIENTS"]
capture = ["SNIFFER"]
[[lan.member]]
guest = "CLI1"
[[lan.member]]
guest = "SREVER"
"#,
        );
        let expected = [
            "s.toml:5: connect = \"SERVR\": no [[guest]] has such a name: did you mean SERVER?",
            "s.toml:5: connect = \"NOSUCH\": no [[guest]] has such a name: must be described as a [[guest]], or be left out",
            "s.toml:8: 10.9.0.7/24 has bits that are not in common: did you mean 10.9.0.0/24?",
            "s.toml:10: capture = \"SNIFFER\": no [[guest]] has such a name: must be described as a [[guest]], or be left out",
            "s.toml:12: CLI1 is not among the members of hs0: must be in members = [..], or be left out",
            "s.toml:14: guest = \"SREVER\": no [[guest]] has such a name: did you mean SERVER?",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn system_without_guests_is_warned_of_and_a_right_one_is_not() {
        let nobody = "s.toml:1: no guest is described: must have a [[guest]], or nobody can attach";
        assert_eq!(warnings("[host]\nguests_max = 7\n"), [nobody]);
        let unit = "[[guest]]\nname = \"A\"\nconnect = [\"DASD\"]\n[[volume]]\nfile = \"a.ckd\"\n\
                    dedicated = { guest = \"A\", device = \"0200\" }\n[[lan]]\nname = \"hs0\"\n";
        assert_eq!(warnings(unit), [""; 0]);
    }
}
