//! Workloads that are not built yet: the case that waits for them says which roles and factors they will have.

use host::config::Bytes;

use super::composed::{leaked, made_once};
use super::{PLAIN, Workload};
use crate::factor::{Domain, Factor, Level};
use crate::role::{HOST, ONE, RoleSpec};

/// The workload of a case that waits for it. Its factors can have the levels that the case varies and, if these are
/// numbers, those between.
pub(crate) fn planned(
    name: &str,
    roles: &[String],
    factors: &[(&str, Vec<Level>)],
) -> &'static Workload {
    made_once(format!("{name} {roles:?} {factors:?}"), || {
        let word = |word: &str| -> &'static str { word.to_owned().leak() };
        let factor = |(name, levels): &(&str, Vec<Level>)| Factor {
            name: word(name),
            meaning: "",
            domain: domain(levels),
            usual: &[],
        };
        let role = |name: &String| RoleSpec { name: word(name), attends: name == HOST, ..ONE };
        Workload {
            name: word(name),
            summary: "not built yet",
            factors: leaked(factors.iter().map(factor)),
            roles: leaked(roles.iter().map(role)),
            unit: "",
            ..PLAIN
        }
    })
}

/// The levels that a factor with these levels can have.
fn domain(levels: &[Level]) -> Domain {
    let bytes = |level: &Level| level.to_string().parse::<Bytes>().ok().map(|Bytes(bytes)| bytes);
    let numbers: Option<Vec<u64>> = levels.iter().map(bytes).collect();
    match numbers.as_deref() {
        Some(numbers @ [first, ..]) => {
            let [least, most] =
                [numbers.iter().min(), numbers.iter().max()].map(|bound| *bound.unwrap_or(first));
            match levels.iter().all(|level| matches!(level, Level::Number(_))) {
                true => Domain::Number { least, most },
                false => Domain::Bytes { least, most },
            }
        }
        _ => Domain::Words(leaked(levels.iter().map(|level| &*level.to_string().leak()))),
    }
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use crate::case::Case;
    use crate::definition::{Per, Quantity};
    use crate::factor::Level;

    const DRAFT: &str = r#"name = "river"
asks = "How wide?"
trials = 2
seconds = 1
warm_up_seconds = 0
skip = [{ bank = "left", width = 3 }]
[planned]
workload = ["river-stream", "river-boat"]
[planned.roles]
boat = "width"
host = 1
[place]
boat = "own"
[factors]
bank = ["left", "right"]
width = [1, 3]
load = ["1 KiB", 10]
[quick]
factors = { width = [5] }
[[metric]]
name = "boats_per_s"
quantity = "work"
kind = "boats"
role = "boat"
per = "second"
[[metric]]
name = "hosts_part"
quantity = "cpu"
role = "host"
per = { quantity = "cpu", role = ["boat", "host"] }
unit = "%"
[[table]]
down = "bank"
across = "width"
metric = "boats_per_s"
[[knee]]
metric = "boats_per_s"
along = "width"
[[claim]]
name = "wider is faster"
metric = "boats_per_s"
of = { width = 3 }
every = "bank"
at_least = 1
"#;

    fn parse(text: &str) -> Result<Case, String> {
        let case = Case::parse(&Source::of("d.toml", text), &|_| unreachable!("it names none"));
        case.map_err(|error| error.to_string())
    }

    #[test]
    fn draft_is_a_case_that_says_what_it_waits_for() {
        let draft = parse(DRAFT).unwrap();
        assert!(draft.workload.is_planned());
        assert_eq!(draft.workload.name, "river-stream, river-boat");
        assert_eq!(draft.factor_names(), ["bank", "load", "width"]);
        assert_eq!(draft.cells().len(), 2 * 2 * 2 - 2);
        assert_eq!(draft.clone().quickly().factors[2].1, [Level::Number(5)]);
        let Per::Amount(whole) = &draft.metrics[1].per else { panic!("a quantity") };
        assert_eq!((whole.quantity, whole.roles.len()), (Quantity::Cpu, 2));
        assert!(std::ptr::eq(draft.workload, parse(DRAFT).unwrap().workload), "once for each");
    }

    #[test]
    fn faults_of_drafts_are_named_with_their_line_and_the_cure() {
        for (from, to, error) in [
            (
                "[\"river-stream\", \"river-boat\"]",
                "[\"river-stream\", \"message-stream\"]",
                "d.toml:8: message-stream is built: must be workload = .., or the name of a workload that is not",
            ),
            (
                "[\"river-stream\", \"river-boat\"]",
                "[]",
                "d.toml:8: a list without names: must have at least one name",
            ),
            ("trials = 2", "trials = 0", "d.toml:3: trials = 0: must be 1 to 1000"),
            (
                "trials = 2",
                "trials = 2\nworkload = \"message-stream\"",
                "d.toml:1: a case with a built and a planned workload: must be workload = \"NAME\", ",
            ),
            (
                "[planned]\nworkload = [\"river-stream\", \"river-boat\"]\n[planned.roles]\nboat = \"width\"\nhost = 1\n",
                "",
                "d.toml:1: a case without a workload: must be workload = \"NAME\", several [[workload]], or [planned]",
            ),
            (
                "bank = \"left\", w",
                "bank = \"up\", w",
                "d.toml:6: bank = \"up\": must be one of left, right",
            ),
            (
                "boat = \"width\"",
                "boat = \"depth\"",
                "d.toml:10: there is no factor \"depth\": must be one of bank, load, width",
            ),
            (
                "boat = \"own\"",
                "ship = \"own\"",
                "d.toml:13: there is no role \"ship\": must be one of boat, host",
            ),
            (
                "of = { width = 3 }",
                "of = { width = 9 }",
                "d.toml:42: width = \"9\": must be 1 to 5",
            ),
            (
                "of = { width = 3 }",
                "of = { width = 2 }",
                "d.toml:40: nothing is measured with 2: must be levels",
            ),
            ("kind = \"boats\"\n", "", "d.toml:22: a quantity of no kind: must have a kind, "),
            (
                "role = [\"boat\", \"host\"] }",
                "role = \"ship\" }",
                "d.toml:30: there is no role \"ship\": must be one of boat, host",
            ),
            (
                "unit = \"%\"",
                "unit = \"ms\"",
                "d.toml:31: a share is not in the unit \"ms\": must be one of %",
            ),
            (
                "down = \"bank\"",
                "down = \"shore\"",
                "d.toml:33: there is no factor \"shore\": must be one of bank, ",
            ),
            (
                "along = \"width\"",
                "along = \"bank\"",
                "d.toml:38: the levels of bank are no numbers",
            ),
            ("asks = ", "ask = ", "d.toml:2: unknown field `ask`"),
        ] {
            assert!(DRAFT.contains(from), "{from}");
            let found = parse(&DRAFT.replacen(from, to, 1)).unwrap_err();
            assert!(found.starts_with(error), "{found}\nis not\n{error}");
        }
    }
}
