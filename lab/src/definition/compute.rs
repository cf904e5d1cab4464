//! Computing a metric from the quantities of the parties.

use super::{Amount, MetricDef, Per, Quantity};
use crate::quantity::{
    POOLED_SPLIT_NS_MIN, Party, Report, SPLIT_NS_MIN, TICKS_NS_MIN, split_error_ns, total,
    unexplained_ns,
};
use crate::role::PACING;
use crate::times::{TimePart, Times};
use crate::workload::{Part, Workload, split};

/// 2^20 bytes.
const MIB: f64 = 1_048_576.0;

const S: f64 = 1e9;

/// The parties of a trial, and what the workload says of their work.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    workload: &'static Workload,
    parties: &'a [Party],
    /// Processor time too short to be split.
    split_ns_min: u64,
}

/// A quantity of which a role has what its parties have together.
#[derive(Clone, Copy)]
struct Additive<'a> {
    quantity: Quantity,
    kind: &'a str,
    part: Option<&'a str>,
}

/// All processor time.
const CPU: Additive<'static> = Additive { quantity: Quantity::Cpu, kind: "", part: None };

impl Additive<'_> {
    /// Whether it is the error of a split, which does not add up.
    fn is_error(self) -> bool {
        self.quantity == Quantity::Cpu && self.part == Some("error")
    }
}

/// The value of a metric, in its unit; none if the parties do not say enough.
pub fn compute(definition: &MetricDef, scope: &Scope<'_>) -> Option<f64> {
    let value = scope.value(&definition.amount(), &definition.per)?;
    let whole = match &definition.per {
        Per::Amount(whole) => scope.value(whole, &Per::Trial)?,
        _ => 1.0,
    };
    let value = value / whole / definition.scale();
    value.is_finite().then_some(value)
}

impl<'a> Scope<'a> {
    /// The parties of a trial of a workload.
    pub fn new(workload: &'static Workload, parties: &'a [Party]) -> Scope<'a> {
        Scope { workload, parties, split_ns_min: SPLIT_NS_MIN }
    }

    /// The sums of the parties of several trials, of which the error is known better than by its samples alone.
    pub(crate) fn together(workload: &'static Workload, sums: &'a [Party]) -> Scope<'a> {
        Scope { workload, parties: sums, split_ns_min: POOLED_SPLIT_NS_MIN }
    }

    fn value(&self, of: &Amount, per: &Per) -> Option<f64> {
        match of.quantity {
            Quantity::Time => self.time(of),
            Quantity::Level => self.level(of),
            Quantity::Unexplained => self.unexplained(per),
            Quantity::Work | Quantity::Cpu | Quantity::Processor | Quantity::Counter => {
                self.sum(of, per)
            }
        }
    }

    /// The roles that an amount is summed over: those it names, or else all but pacing; of work only the measured one, or
    /// the same bytes would count at each party that they come by.
    fn roles(&self, of: &Amount, per: &Per) -> Vec<&'a str> {
        let mut roles: Vec<&str> = Vec::new();
        let threads = self.reports().flat_map(|report| &report.cpu);
        let threads = threads.map(|thread| thread.role.as_str());
        for role in self.parties.iter().map(|party| party.role.as_str()).chain(threads) {
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        let is_of_work = of.quantity == Quantity::Work && *per != Per::CpuSecond;
        roles.retain(|role| match &*of.roles {
            [] if is_of_work => self.measured(role) == *role,
            [] => split(role).1 != PACING,
            named => named.iter().any(|name| name == role),
        });
        roles
    }

    fn reports(&self) -> impl Iterator<Item = &'a Report> {
        self.parties.iter().map(|party| &party.report)
    }

    fn of<'b>(&self, role: &'b str) -> impl Iterator<Item = &'a Report> + use<'a, 'b> {
        let parties = self.parties.iter().filter(move |party| party.role == role);
        parties.map(|party| &party.report)
    }

    /// The role by whose work a role is divided that does none: of several that may be measured, the one that takes part.
    fn measured(&self, role: &str) -> &'static str {
        let part = self.part(role);
        // The roles of a composed workload have the names of their parts before them.
        let own = self.workload.roles.iter().filter(|role| part.has(role.name));
        let measured: Vec<&str> =
            own.filter(|role| role.is_measured).map(|role| role.name).collect();
        let takes_part = |name: &&&str| self.parties.iter().any(|party| party.role == **name);
        measured.iter().find(takes_part).or(measured.first()).copied().unwrap_or_default()
    }

    /// The workload of a role.
    fn part(&self, role: &str) -> Part {
        let parts = self.workload.parts();
        let found = parts.iter().find(|part| part.has(role)).or(parts.first());
        *found.expect("every workload has a part")
    }

    /// The kind of work that the costs of a role are divided by.
    fn unit(&self, role: &str) -> &'static str {
        self.part(role).workload.unit
    }

    /// The work that a role's costs are divided by; none if nobody has done any.
    fn work(&self, role: &str, kind: &str) -> Option<f64> {
        let done = |role: &str| total(self.of(role).map(|report| report.work(kind)));
        let found = [role, self.measured(role)].into_iter().map(done).find(|work| *work > 0);
        found.map(|work| work as f64)
    }

    /// What a role has of an additive quantity; none if it does not say.
    fn amount(&self, role: &str, of: Additive<'_>) -> Option<f64> {
        let amounts = self.amounts(role, of).map(|(amount, _)| amount);
        let sum = amounts.reduce(|one, other| one + other)?;
        Some(if of.is_error() { split_error_ns(sum as u64) } else { sum })
    }

    /// The same for each nanosecond: each party's amount in its own window. Windows of two parties differ, most of all
    /// on a machine that is taken away.
    fn amount_per_ns(&self, role: &str, of: Additive<'_>) -> Option<f64> {
        if of.is_error() {
            let own = mean_window_ns(self.of(role)).or_else(|| mean_window_ns(self.reports()));
            return Some(self.amount(role, of)? / own?);
        }
        let amounts = self.amounts(role, of).filter(|(_, report)| report.window_ns > 0);
        let each = amounts.map(|(amount, report)| per_window(amount, report.window_ns));
        each.reduce(|one, other| one + other)
    }

    /// What a role has of an additive quantity in each report that says it. Threads of a party may work for another
    /// role.
    fn amounts<'b>(
        &'b self,
        role: &'b str,
        of: Additive<'b>,
    ) -> impl Iterator<Item = (f64, &'a Report)> + use<'a, 'b> {
        let Additive { quantity, kind, part } = of;
        self.parties.iter().filter_map(move |party| {
            let report = &party.report;
            let is_own = party.role == role;
            let amount = match quantity {
                Quantity::Work => is_own.then(|| report.work(kind)),
                Quantity::Counter => {
                    is_own.then(|| report.counters.get(kind).copied().unwrap_or(0))
                }
                Quantity::Cpu => cpu_in(report, role, is_own, part),
                Quantity::Processor if is_own && !report.processors.is_empty() => {
                    let noted = report.processors.iter().map(|processor| match part {
                        Some("stolen") => processor.stolen_ns,
                        _ => processor.busy_ns,
                    });
                    Some(total(noted))
                }
                Quantity::Processor | Quantity::Time | Quantity::Level | Quantity::Unexplained => {
                    None
                }
            };
            Some((amount? as f64, report))
        })
    }

    /// What a role costs for each unit of a kind of work: of its own, or else, for a role that does none, of that of the
    /// measured role in the same time.
    fn for_each(&self, role: &str, of: Additive<'_>, kind: &str) -> Option<f64> {
        let own = total(self.of(role).map(|report| report.work(kind)));
        if own > 0 {
            return Some(self.amount(role, of)? / own as f64);
        }
        let work = Additive { quantity: Quantity::Work, kind, part: None };
        let done = self.amount_per_ns(self.measured(role), work).filter(|done| *done > 0.0);
        Some(self.amount_per_ns(role, of)? / done?)
    }

    /// Whether there is enough of what the kernel samples, or counts in ticks.
    fn says_enough(&self, roles: &[&str], of: Additive<'_>) -> bool {
        match (of.quantity, of.part) {
            (Quantity::Cpu, Some("user" | "system" | "error")) => {
                let cpu = roles.iter().filter_map(|role| self.amount(role, CPU));
                cpu.sum::<f64>() >= self.split_ns_min as f64
            }
            // The others' figure would pass for that of all.
            (Quantity::Cpu, Some("busy")) => roles.iter().all(|role| {
                let mut reports = self.of(role);
                reports.all(|report| cpu_in(report, role, true, Some("busy")).is_some())
            }),
            (Quantity::Processor, _) => {
                let mut windows = roles.iter().flat_map(|role| self.of(role));
                windows.all(|report| report.window_ns >= TICKS_NS_MIN)
            }
            _ => true,
        }
    }

    fn sum(&self, of: &Amount, per: &Per) -> Option<f64> {
        let roles = self.roles(of, per);
        let kind = of.kind.as_deref().unwrap_or_default();
        let of = Additive { quantity: of.quantity, kind, part: of.part.as_deref() };
        if roles.is_empty() || !self.says_enough(&roles, of) {
            return None;
        }
        // A role that does not say it, as a host that counts no spinning, adds nothing.
        let summed = |of: &dyn Fn(&str) -> Option<f64>| {
            roles.iter().filter_map(|role| of(role)).reduce(|one, other| one + other)
        };
        match per {
            Per::Trial | Per::Amount(_) => summed(&|role| self.amount(role, of)),
            Per::Work(kind) => summed(&|role| self.for_each(role, of, kind)),
            Per::Mib => summed(&|role| Some(self.for_each(role, of, "bytes")? * MIB)),
            Per::Second => summed(&|role| Some(self.amount_per_ns(role, of)? * S))
                .filter(|rate| of.quantity != Quantity::Work || *rate > 0.0),
            Per::CpuSecond => {
                let cpu = |role: &&str| {
                    Some(self.amount(role, CPU)? / S / self.work(role, self.unit(role))?)
                };
                let cpu: f64 = roles.iter().filter_map(cpu).sum();
                let done = |role: &str| self.for_each(role, of, self.unit(role));
                let done = match of.quantity {
                    Quantity::Work => done(self.measured(roles[0]))?,
                    _ => summed(&done)?,
                };
                (cpu > 0.0).then_some(done / cpu)
            }
            Per::Share => self.share(&roles, of),
        }
    }

    /// A part of a quantity, of all of it.
    fn share(&self, roles: &[&str], of: Additive<'_>) -> Option<f64> {
        let sum = |part| -> f64 {
            let of = Additive { part, ..of };
            roles.iter().filter_map(|role| self.amount(role, of)).sum()
        };
        let (part, whole) = match (of.quantity, of.part?) {
            (Quantity::Cpu, part @ ("user" | "system" | "error")) => {
                // What the kernel has sampled.
                let whole = sum(Some("user")) + sum(Some("system"));
                let is_error = part == "error";
                (if is_error { split_error_ns(whole as u64) } else { sum(Some(part)) }, whole)
            }
            (Quantity::Cpu, part) => (sum(Some(part)), sum(None)),
            (Quantity::Processor, "stolen") => {
                let stolen = sum(Some("stolen"));
                (stolen, stolen + sum(Some("busy")))
            }
            _ => return None,
        };
        (whole > 0.0).then_some(part / whole)
    }

    fn time(&self, of: &Amount) -> Option<f64> {
        let kind = of.kind.as_deref();
        let is_meant = |(name, _): &(&String, &Times)| kind.is_none_or(|kind| kind == *name);
        let roles = self.roles(of, &Per::Trial);
        let all = roles.iter().flat_map(|role| self.of(role)).flat_map(|report| &report.times);
        let all: Vec<&Times> = all.filter(is_meant).map(|(_, times)| times).collect();
        Times::part(&all, of.part.as_deref().map_or(Some(TimePart::Mean), TimePart::of)?)
    }

    fn level(&self, of: &Amount) -> Option<f64> {
        let kind = of.kind.as_deref().unwrap_or_default();
        let roles = self.roles(of, &Per::Trial);
        let levels = roles.iter().flat_map(|role| self.of(role)).filter_map(|r| r.levels.get(kind));
        levels.copied().reduce(f64::max)
    }

    fn unexplained(&self, per: &Per) -> Option<f64> {
        let left = unexplained_ns(self.parties)? as f64;
        let busy = || self.reports().filter(|report| !report.processors.is_empty());
        let busy_ns = |report: &Report| {
            let busy = total(report.processors.iter().map(|processor| processor.busy_ns));
            per_window(busy as f64, report.window_ns)
        };
        let window_ns = mean_window_ns(self.reports())?;
        let measured = self.parties.first().map(|party| self.measured(&party.role))?;
        match per {
            Per::Trial | Per::Amount(_) => Some(left),
            Per::Second => Some(left / window_ns * S),
            Per::Work(kind) => Some(left / self.work(measured, kind)?),
            Per::Mib => Some(left / self.work(measured, "bytes")? * MIB),
            Per::Share => Some(left / (busy().map(busy_ns).sum::<f64>() * window_ns)),
            Per::CpuSecond => None,
        }
    }
}

/// Processor time in a report that is of a role; none if the report says nothing of it.
fn cpu_in(report: &Report, role: &str, is_own: bool, part: Option<&str>) -> Option<u64> {
    if part == Some("spinning") {
        return report.spinning_ns.filter(|_| is_own);
    }
    if part == Some("busy") {
        let all = cpu_in(report, role, is_own, None)?;
        let spinning_ns = report.spinning_ns.filter(|_| is_own).unwrap_or(0);
        // A thread that found nothing for as long as it ran, or longer, has not measured the rest: that is not 0.
        return if spinning_ns == 0 {
            Some(all)
        } else {
            all.checked_sub(spinning_ns).filter(|ns| *ns > 0)
        };
    }
    let threads = report.cpu.iter().filter(|thread| thread.role == role);
    let ns = threads.map(|thread| match part {
        Some("user") => thread.user_ns,
        Some("system") => thread.system_ns,
        _ => thread.ns,
    });
    // A party without threads of its own has spent nothing; one that is asked for another's knows nothing.
    ns.reduce(u64::saturating_add).or(is_own.then_some(0))
}

/// The mean of the windows of those that had one.
fn mean_window_ns<'a>(reports: impl Iterator<Item = &'a Report>) -> Option<f64> {
    let windows = reports.map(|report| report.window_ns).filter(|ns| *ns > 0);
    let windows: Vec<f64> = windows.map(|ns| ns as f64).collect();
    (!windows.is_empty()).then(|| windows.iter().sum::<f64>() / windows.len() as f64)
}

/// An amount for each nanosecond of a window.
fn per_window(amount: f64, window_ns: u64) -> f64 {
    if window_ns == 0 { 0.0 } else { amount / window_ns as f64 }
}

#[cfg(test)]
mod tests;
