//! Checks of the metrics that a case defines.

use super::wrong::{At, Wrong};
use crate::definition::{Amount, MetricDef, Per, Quantity};
use crate::metric::renamed;
use crate::quantity::{TIMES, WORK};
use crate::role::PACING;
use crate::times::TimePart;
use crate::workload::Workload;

impl MetricDef {
    /// Checks that the metric makes sense of a workload.
    pub(super) fn check(&mut self, workload: &Workload) -> Result<(), Wrong> {
        let name = &self.name;
        let is_in_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let (what, right) = if name.is_empty() || !name.bytes().all(is_in_name) {
            ("no name of a metric:", "must be small letters, digits, _".to_owned())
        } else if workload.metrics().contains(&name.as_str()) {
            let own = workload.metrics().join(", ");
            ("there is already a metric", format!("must be another than {own}"))
        } else if renamed(name) != *name {
            let right = format!("must be another: this is the older name of {}", renamed(name));
            ("there is already a metric", right)
        } else {
            return self.check_meaning(workload);
        };
        Err(Wrong::new(format!("{what} {name:?}"), right)).at("name")
    }

    fn check_meaning(&mut self, workload: &Workload) -> Result<(), Wrong> {
        self.amount().check(workload)?;
        match &self.per {
            Per::Amount(whole) => whole.check(workload).at("per")?,
            _ if self.is_divided() => {}
            _ => {
                let what = "a quantity that is not divided by this";
                return Err(Wrong::new(what, "must be another one, or left out")).at("per");
            }
        }
        let (label, units) = (self.unit.label, self.known_units());
        if !label.is_empty() && !units.contains(&label) {
            let what = if self.is_share() { "a share" } else { "this quantity" };
            let right = host::near::right(label, units);
            return Err(Wrong::new(format!("{what} is not in the unit {label:?}"), right))
                .at("unit");
        }
        if let Some(times) = self.times.filter(|times| !times.is_finite() || *times <= 0.0) {
            return Err(Wrong::new(format!("times = {times}"), "must be more than 0")).at("times");
        }
        if self.label.is_empty() {
            self.label = self.name.replace('_', " ");
        }
        Ok(())
    }

    /// Whether the quantity can be divided so.
    fn is_divided(&self) -> bool {
        match (self.quantity, &self.per) {
            (_, Per::Trial) | (Quantity::Unexplained, Per::Share) => true,
            (Quantity::Time | Quantity::Level, _) | (Quantity::Unexplained, Per::CpuSecond) => {
                false
            }
            (Quantity::Cpu, Per::Share) => self.part.is_some(),
            (Quantity::Processor, Per::Share) => self.part.as_deref() == Some("stolen"),
            (Quantity::Work | Quantity::Counter, Per::Share) => false,
            _ => true,
        }
    }

    /// The units that its numbers can have.
    fn known_units(&self) -> &'static [&'static str] {
        let kind = self.kind.as_deref();
        match (self.quantity, &self.per) {
            _ if self.is_share() => &["%"],
            // All of a processor is a second in a second.
            (Quantity::Cpu | Quantity::Processor, Per::Second) => {
                &["ns", "us", "µs", "ms", "s", "%"]
            }
            (Quantity::Time | Quantity::Cpu | Quantity::Processor | Quantity::Unexplained, _) => {
                &["ns", "us", "µs", "ms", "s"]
            }
            (Quantity::Work, _) if kind != Some("bytes") => &["thousand", "million"],
            // Counters and levels can be of bytes.
            (Quantity::Work | Quantity::Counter | Quantity::Level, _) => {
                &["B", "KiB", "MiB", "kB", "MB", "GB", "thousand", "million"]
            }
        }
    }
}

impl Amount {
    /// Checks that the quantity, its kind, part and roles are those of a workload.
    fn check(&self, workload: &Workload) -> Result<(), Wrong> {
        let Amount { quantity, kind, part, roles } = self;
        let (kinds, needs_kind): (&[&str], _) = match quantity {
            Quantity::Work => (WORK, true),
            Quantity::Time => (TIMES, false),
            Quantity::Counter | Quantity::Level => (&[], true),
            Quantity::Cpu | Quantity::Processor | Quantity::Unexplained => (&[], false),
        };
        // A workload that is not built yet may count and time what no other does.
        let kinds = if workload.is_planned() { &[] } else { kinds };
        known("kind", kind.as_deref(), kinds)?;
        if kind.is_none() && needs_kind {
            let right = "must have a kind, for example kind = \"messages\"";
            return Err(Wrong::new("a quantity of no kind", right)).at("quantity");
        }
        let parts: &[&str] = match (quantity, part) {
            (Quantity::Cpu, _) => &["user", "system", "spinning", "busy", "error"],
            (Quantity::Processor, _) => &["busy", "stolen"],
            (Quantity::Time, Some(part)) if TimePart::of(part).is_some() => &[],
            (Quantity::Time, _) => &["p50", "p99", "p999", "median", "mean", "max"],
            (_, None) => &[],
            (_, Some(_)) => {
                return Err(Wrong::new("a quantity without parts", "must be left out")).at("part");
            }
        };
        known("part", part.as_deref(), parts)?;
        let mut names: Vec<&str> = workload.roles.iter().map(|role| role.name).collect();
        if *quantity == Quantity::Cpu {
            names.push(PACING);
        }
        roles.iter().try_for_each(|role| known("role", Some(role), &names))
    }
}

/// Checks that a word is one of those that are known, if some are.
fn known(key: &str, word: Option<&str>, known: &[&str]) -> Result<(), Wrong> {
    match word.filter(|word| !known.is_empty() && !known.contains(word)) {
        None => Ok(()),
        Some(word) => Err(Wrong::unknown(key, word, known)).at(key),
    }
}

#[cfg(test)]
mod tests {
    use host::config::Source;

    use super::*;
    use crate::case::Case;

    const CASE: &str = r#"name = "mine"
asks = "What?"
workload = "message-stream"
trials = 1
seconds = 1
warm_up_seconds = 0
[[metric]]
name = "kernel_ms_per_mib"
quantity = "cpu"
part = "system"
role = ["source", "target"]
per = "mib"
unit = "ms"
label = "kernel"
better = "less"
times = 10
[[metric]]
name = "worst"
quantity = "time"
kind = "latency"
part = "p9999"
[place]
source = 0
host = "own"
[[table]]
metric = ["kernel_ms_per_mib", "worst", "rate_bytes_per_s"]
down = "transport"
"#;

    fn parse(text: &str) -> Result<Case, String> {
        let case = Case::parse(&Source::of("c.toml", text), &|_| unreachable!("it names none"));
        case.map_err(|error| error.to_string())
    }

    #[test]
    fn metrics_of_a_case_are_definitions() {
        let case = parse(CASE).unwrap();
        let [kernel, worst] = &case.metrics[..] else { panic!("two metrics") };
        assert_eq!((kernel.quantity, &kernel.per), (Quantity::Cpu, &Per::Mib));
        assert_eq!((kernel.unit.label, kernel.times), ("ms", Some(10.0)));
        assert_eq!(kernel.roles, ["source", "target"]);
        assert_eq!((kernel.label.as_str(), worst.label.as_str()), ("kernel", "worst"));
        assert_eq!((&worst.per, worst.unit.label), (&Per::Trial, ""));
        assert_eq!(case.tables[0].metrics.len(), 3);
        assert_eq!(case.place.len(), 2);
    }

    #[test]
    fn faults_of_metrics_are_named_with_their_line_and_the_cure() {
        for (from, to, error) in [
            (
                "\"worst\"\n",
                "\"Worst\"\n",
                "c.toml:18: no name of a metric: \"Worst\": must be small letters, digits, _",
            ),
            (
                "\"worst\"\nq",
                "\"rate_bytes_per_s\"\nq",
                "c.toml:18: there is already a metric \"rate_bytes_per_s\": must be another than ",
            ),
            (
                "\"worst\"\nq",
                "\"cpu_cp_percent\"\nq",
                "c.toml:18: there is already a metric \"cpu_cp_percent\": must be another: this is the older name of kernel_",
            ),
            (
                "\"cpu\"",
                "\"power\"",
                "c.toml:9: unknown variant `power`: must be one of `work`, `time`, `cpu`, ",
            ),
            (
                "\"time\"\nkind = \"latency\"",
                "\"work\"",
                "c.toml:19: a quantity of no kind: must have a kind, for example kind = \"messages\"",
            ),
            (
                "\"latency\"",
                "\"weight\"",
                "c.toml:20: there is no kind \"weight\": must be one of latency, ",
            ),
            (
                "\"system\"",
                "\"idle\"",
                "c.toml:10: there is no part \"idle\": must be one of user, system, spinning, busy, error",
            ),
            (
                "\"p9999\"",
                "\"least\"",
                "c.toml:21: there is no part \"least\": must be one of p50, ",
            ),
            (
                "\"target\"]",
                "\"stack\"]",
                "c.toml:11: there is no role \"stack\": must be one of host, adapter, source, target, peer_adapter",
            ),
            (
                "\"mib\"",
                "\"mile\"",
                "c.toml:12: there is no denominator \"mile\": must be one of trial, message, ",
            ),
            (
                "part = \"p9999\"",
                "per = \"message\"",
                "c.toml:21: a quantity that is not divided by this: must be another one, or left out",
            ),
            (
                "\"ms\"",
                "\"hours\"",
                "c.toml:13: there is no unit \"hours\": must be one of ns, us, ",
            ),
            (
                "\"ms\"",
                "\"MiB\"",
                "c.toml:13: this quantity is not in the unit \"MiB\": must be one of ns, us, µs, ms, s",
            ),
            (
                "part = \"system\"\nrole = [\"source\", \"target\"]\nper = \"mib\"",
                "part = \"system\"\nper = \"share\"",
                "c.toml:12: a share is not in the unit \"ms\": must be one of %",
            ),
            ("times = 10", "times = 0", "c.toml:16: times = 0: must be more than 0"),
            (
                "\"less\"",
                "\"fewer\"",
                "c.toml:15: unknown variant `fewer`: must be `more` or `less`",
            ),
            (
                "source = 0",
                "stack = 0",
                "c.toml:23: there is no role \"stack\": must be one of host, adapter, source, target, peer_adapter",
            ),
            (
                "\"own\"",
                "\"mine\"",
                "c.toml:24: this is no placement: must be a processor, or one of own, shared, any",
            ),
            (
                "\"worst\", \"rate",
                "\"best\", \"rate",
                "c.toml:26: there is no metric \"best\": must be one of rate_messages_per_s, ",
            ),
        ] {
            assert!(CASE.contains(from), "{from}");
            let found = parse(&CASE.replacen(from, to, 1)).unwrap_err();
            assert!(found.starts_with(error), "{found}\nis not\n{error}");
        }
    }
}
