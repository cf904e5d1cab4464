//! Metrics that a case defines.

use host::config::{FileError, Source};
use serde::Deserialize;
use toml::Spanned;

use super::written::{OneOrMany, unknown};
use crate::definition::{Amount, MetricDef, PERS, Per, QUANTITIES, Quantity, UNITS, Unit};
use crate::metric::{Better, renamed};
use crate::quantity::{TIMES, WORK};
use crate::role::PACING;
use crate::times::TimePart;
use crate::workload::Workload;

/// `[[metric]]`, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenMetric {
    pub(super) name: Spanned<String>,
    quantity: Spanned<String>,
    kind: Option<Spanned<String>>,
    part: Option<Spanned<String>>,
    role: Option<Spanned<OneOrMany>>,
    per: Option<Spanned<WrittenPer>>,
    unit: Option<Spanned<String>>,
    times: Option<Spanned<f64>>,
    label: Option<String>,
    better: Option<Spanned<String>>,
    #[serde(default)]
    meaning: String,
}

/// What a metric is divided by.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a name, or a quantity with its kind, part and role")]
enum WrittenPer {
    Word(String),
    Amount(WrittenAmount),
}

/// A quantity of some roles.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAmount {
    quantity: String,
    kind: Option<String>,
    part: Option<String>,
    role: Option<OneOrMany>,
}

/// The parts of processor time, and of the time of whole processors.
const CPU_PARTS: &[&str] = &["user", "system", "spinning", "busy", "error"];
const PROCESSOR_PARTS: &[&str] = &["busy", "stolen"];

impl WrittenMetric {
    /// The metric, if it makes sense of a workload.
    pub(super) fn check(
        self,
        source: &Source,
        workload: &Workload,
    ) -> Result<MetricDef, FileError> {
        let wrong = |written: &Spanned<String>, what: &str, right: String| {
            Err(source.error(written.span(), format!("{what} {:?}", written.get_ref()), right))
        };
        let name = self.name.get_ref();
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            let right = "must be small letters, digits, _".to_owned();
            return wrong(&self.name, "no name of a metric:", right);
        }
        if workload.metrics.contains(&name.as_str()) {
            let right = format!("must be another than {}", workload.metrics.join(", "));
            return wrong(&self.name, "there is already a metric", right);
        }
        if renamed(name) != *name {
            let right = format!("must be another: this is the older name of {}", renamed(name));
            return wrong(&self.name, "there is already a metric", right);
        }
        let kinds = [self.kind.as_ref(), self.part.as_ref()];
        let (quantity, roles) = amount(source, workload, &self.quantity, kinds, self.role)?;
        let (mut word, mut whole) = (None, None);
        match self.per.map(|per| (per.span(), per.into_inner())) {
            None => {}
            Some((span, WrittenPer::Word(name))) => word = Some(Spanned::new(span, name)),
            Some((span, WrittenPer::Amount(written))) => {
                let at = |text: String| Spanned::new(span.clone(), text);
                let WrittenAmount { quantity, kind, part, role } = written;
                let (own, kind, part) = (at(quantity), kind.map(at), part.map(at));
                let role = role.map(|role| Spanned::new(span.clone(), role));
                let (quantity, roles) =
                    amount(source, workload, &own, [kind.as_ref(), part.as_ref()], role)?;
                let [kind, part] = [kind, part].map(|text| text.map(Spanned::into_inner));
                whole = Some(Box::new(Amount { quantity, kind, part, roles }));
            }
        }
        let per = one_of(source, "denominator", word.as_ref(), PERS)?.unwrap_or(Per::Trial);
        if let Some(written) = word.as_ref().filter(|_| !is_divided(quantity, &self.part, per)) {
            let what = format!("{quantity}, of that part, is not divided by");
            return wrong(written, &what, "must be another one, or left out".into());
        }
        let mut unit = match &self.unit {
            None => UNITS[0],
            Some(written) => match Unit::find(written.get_ref()) {
                Some(unit) => unit,
                None => {
                    let known: Vec<&str> = UNITS.iter().map(|unit| unit.label).collect();
                    return Err(unknown(source, "unit", written, &known[1..]));
                }
            },
        };
        let is_same = |own: &Amount| {
            own.quantity == quantity
                && own.kind.as_ref() == self.kind.as_ref().map(Spanned::get_ref)
        };
        let is_share = per == Per::Share || whole.as_deref().is_some_and(is_same);
        // All of a processor is a second in a second.
        let is_of_processor =
            per == Per::Second && matches!(quantity, Quantity::Cpu | Quantity::Processor);
        unit.scale = unit.scale_per(per);
        let kind = self.kind.as_ref().map(|kind| kind.get_ref().as_str());
        let units = units_of(quantity, kind, is_share);
        if let Some(written) = &self.unit
            && !units.contains(&unit.label)
            && !(unit.label == "%" && is_of_processor)
        {
            let share = if is_share { "a share of " } else { "" };
            let right = host::near::right(written.get_ref(), units);
            return wrong(written, &format!("{share}{quantity} is not in the unit"), right);
        }
        let unit = match &self.times {
            None => unit,
            Some(times) if times.get_ref().is_finite() && *times.get_ref() > 0.0 => {
                Unit { scale: unit.scale / times.get_ref(), ..unit }
            }
            Some(times) => {
                let what = format!("times = {}", times.get_ref());
                return Err(source.error(times.span(), what, "must be more than 0"));
            }
        };
        let betters = [("more", Better::More), ("less", Better::Less)];
        let better = one_of(source, "way", self.better.as_ref(), &betters)?;
        let usual = if quantity == Quantity::Work { Better::More } else { Better::Less };
        Ok(MetricDef {
            label: self.label.unwrap_or_else(|| name.replace('_', " ")),
            quantity,
            kind: self.kind.map(Spanned::into_inner),
            part: self.part.map(Spanned::into_inner),
            roles,
            per,
            whole,
            unit,
            better: better.unwrap_or(usual),
            meaning: self.meaning,
            name: self.name.into_inner(),
        })
    }
}

/// The quantity and the roles of a metric or of what it is divided by, if they make sense of a workload.
fn amount(
    source: &Source,
    workload: &Workload,
    written: &Spanned<String>,
    [kind, part]: [Option<&Spanned<String>>; 2],
    role: Option<Spanned<OneOrMany>>,
) -> Result<(Quantity, Vec<String>), FileError> {
    let wrong = |written: &Spanned<String>, what: &str, right: String| {
        Err(source.error(written.span(), format!("{what} {:?}", written.get_ref()), right))
    };
    let quantity = one_of(source, "quantity", Some(written), QUANTITIES)?;
    let quantity = quantity.expect("it is written");
    let kinds = match quantity {
        // A workload that is not built yet may count and time what no other does.
        _ if workload.is_planned() => None,
        Quantity::Work => Some(WORK),
        Quantity::Time => Some(TIMES),
        _ => None,
    };
    match (kind, kinds) {
        (Some(kind), Some(known)) if !known.contains(&kind.get_ref().as_str()) => {
            return Err(unknown(source, &format!("kind of {quantity}"), kind, known));
        }
        (None, _) if matches!(quantity, Quantity::Work | Quantity::Counter | Quantity::Level) => {
            let right = "must have a kind, for example kind = \"messages\"".to_owned();
            return wrong(written, "of no kind: quantity", right);
        }
        _ => {}
    }
    if let Some(part) = part {
        let known = match quantity {
            Quantity::Cpu => CPU_PARTS,
            Quantity::Processor => PROCESSOR_PARTS,
            Quantity::Time if TimePart::of(part.get_ref()).is_some() => &[],
            Quantity::Time => &["p50", "p99", "p999", "median", "mean", "max"],
            _ => {
                return wrong(part, &format!("{quantity} has no part"), "must be left out".into());
            }
        };
        if !known.is_empty() && !known.contains(&part.get_ref().as_str()) {
            return Err(unknown(source, &format!("part of {quantity}"), part, known));
        }
    }
    let mut known: Vec<&str> = workload.roles.iter().map(|role| role.name).collect();
    if quantity == Quantity::Cpu {
        known.push(PACING);
    }
    let roles = role.map(OneOrMany::names).unwrap_or_default();
    if let Some(role) = roles.iter().find(|role| !known.contains(&role.get_ref().as_str())) {
        return Err(unknown(source, "role", role, &known));
    }
    Ok((quantity, roles.into_iter().map(Spanned::into_inner).collect()))
}

const TIME_UNITS: &[&str] = &["ns", "us", "µs", "ms", "s"];
const BYTE_UNITS: &[&str] = &["B", "KiB", "MiB", "kB", "MB", "GB", "thousand", "million"];
const COUNT_UNITS: &[&str] = &["thousand", "million"];

/// The units that numbers of a quantity can have.
fn units_of(quantity: Quantity, kind: Option<&str>, is_share: bool) -> &'static [&'static str] {
    match quantity {
        _ if is_share => &["%"],
        Quantity::Time | Quantity::Cpu | Quantity::Processor | Quantity::Unexplained => TIME_UNITS,
        Quantity::Work if kind != Some("bytes") => COUNT_UNITS,
        // Counters and levels can be of bytes.
        Quantity::Work | Quantity::Counter | Quantity::Level => BYTE_UNITS,
    }
}

/// Whether a quantity can be divided so.
fn is_divided(quantity: Quantity, part: &Option<Spanned<String>>, per: Per) -> bool {
    let part = part.as_ref().map(|part| part.get_ref().as_str());
    match (quantity, per) {
        (_, Per::Trial) | (Quantity::Unexplained, Per::Share) => true,
        (Quantity::Time | Quantity::Level, _) | (Quantity::Unexplained, Per::CpuSecond) => false,
        (Quantity::Cpu, Per::Share) => part.is_some(),
        (Quantity::Processor, Per::Share) => part == Some("stolen"),
        (Quantity::Work | Quantity::Counter, Per::Share) => false,
        _ => true,
    }
}

/// The one that is written, by its name.
fn one_of<T: Copy>(
    source: &Source,
    what: &str,
    written: Option<&Spanned<String>>,
    known: &[(&str, T)],
) -> Result<Option<T>, FileError> {
    let Some(written) = written else { return Ok(None) };
    let found = known.iter().find(|(name, _)| name == written.get_ref());
    let names = || known.iter().map(|(name, _)| *name).collect::<Vec<_>>();
    let found = found.ok_or_else(|| unknown(source, what, written, &names()))?;
    Ok(Some(found.1))
}

#[cfg(test)]
mod tests {
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
        assert_eq!((kernel.quantity, kernel.per), (Quantity::Cpu, Per::Mib));
        assert_eq!((kernel.unit.label, kernel.unit.scale), ("ms", 1e5));
        assert_eq!(kernel.roles, ["source", "target"]);
        assert_eq!((kernel.label.as_str(), worst.label.as_str()), ("kernel", "worst"));
        assert_eq!((worst.per, worst.unit.label), (Per::Trial, ""));
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
                "c.toml:9: there is no quantity \"power\": must be one of work, time, cpu, ",
            ),
            (
                "\"time\"\nkind = \"latency\"",
                "\"work\"",
                "c.toml:19: of no kind: quantity \"work\": must have a kind, for example kind = \"messages\"",
            ),
            (
                "\"latency\"",
                "\"weight\"",
                "c.toml:20: there is no kind of time \"weight\": must be one of latency, ",
            ),
            (
                "\"system\"",
                "\"idle\"",
                "c.toml:10: there is no part of cpu \"idle\": must be one of user, system, spinning, busy, error",
            ),
            (
                "\"p9999\"",
                "\"least\"",
                "c.toml:21: there is no part of time \"least\": must be one of p50, ",
            ),
            (
                "\"target\"]",
                "\"stack\"]",
                "c.toml:11: there is no role \"stack\": must be one of host, source, target",
            ),
            (
                "\"mib\"",
                "\"mile\"",
                "c.toml:12: there is no denominator \"mile\": must be one of trial, message, ",
            ),
            (
                "part = \"p9999\"",
                "per = \"message\"",
                "c.toml:21: time, of that part, is not divided by \"message\": must be another one, or left out",
            ),
            (
                "\"ms\"",
                "\"hours\"",
                "c.toml:13: there is no unit \"hours\": must be one of ns, us, ",
            ),
            (
                "\"ms\"",
                "\"MiB\"",
                "c.toml:13: cpu is not in the unit \"MiB\": must be one of ns, us, µs, ms, s",
            ),
            (
                "part = \"system\"\nrole = [\"source\", \"target\"]\nper = \"mib\"",
                "part = \"system\"\nper = \"share\"",
                "c.toml:12: a share of cpu is not in the unit \"ms\": must be one of %",
            ),
            ("times = 10", "times = 0", "c.toml:16: times = 0: must be more than 0"),
            (
                "\"less\"",
                "\"fewer\"",
                "c.toml:15: there is no way \"fewer\": must be one of more, less",
            ),
            (
                "source = 0",
                "stack = 0",
                "c.toml:23: there is no role \"stack\": must be one of host, source, target",
            ),
            (
                "\"own\"",
                "\"mine\"",
                "c.toml:24: \"mine\": must be a processor, or one of own, shared, any",
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
