//! A comparison as a report: what became worse first, then all figures, then how sure they are.

use std::fmt;

use serde::Serialize;

use super::{Change, Compared, Comparison, Difference, Side, Uncompared, Wishes, only_in};
use crate::factor::{Factors, describe};
use crate::report::series::Series;
use crate::report::table::NOTHING;
use crate::report::{Block, Grid, Report, counted, distinct, grouped, numbered};
use crate::statistics::TRIALS_MIN;
use crate::unit::{self, show_interval};

/// As in JSON.
impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(formatter)
    }
}

/// Figures that are named one by one at the top.
const NAMED_MAX: usize = 20;

impl Comparison<'_> {
    /// The comparison of two results that are called so.
    pub fn report(&self, a: &str, b: &str, wishes: Wishes) -> Report {
        let mut blocks = vec![
            Block::Heading("A and B".into()),
            Block::Text(format!("A: {a}\nB: {b}")),
            Block::Text(self.sentence()),
        ];
        for (verdict, title) in [(Change::Worse, "Worse in B"), (Change::Better, "Better in B")] {
            let lines = self.lines(verdict, wishes);
            if !lines.is_empty() {
                blocks.extend([Block::Text(format!("{title}:")), Block::List(lines)]);
            }
        }
        for series in &self.b {
            let own = self.compared.iter().filter(|one| one.case == series.name);
            let own: Vec<&Compared> = own.collect();
            if own.is_empty() {
                continue;
            }
            blocks.push(Block::Heading(series.name.to_owned()));
            blocks.extend(series.case.as_ref().map(|case| Block::Text(case.asks.clone())));
            blocks.extend(tables(series, &own));
        }
        blocks.push(Block::Heading("How sure".into()));
        blocks.push(Block::List(self.how_sure(wishes)));
        blocks.push(Block::Heading("What to try next".into()));
        blocks.push(Block::List(self.what_next()));
        Report { blocks }
    }

    /// `Of 24 figures 1 is worse, 2 are better, 20 show no difference and 1 is undecided.`
    fn sentence(&self) -> String {
        if self.compared.is_empty() {
            return "A and B have no figure in common that can be compared.".to_owned();
        }
        let parts = numbered(&[
            (self.count(Change::Worse), "is worse in B", "are worse in B"),
            (self.count(Change::Better), "is better", "are better"),
            (self.count(Change::Same), "shows no difference", "show no difference"),
            (self.count(Change::Undecided), "is undecided", "are undecided"),
        ]);
        format!("Of {} {}.", counted(self.compared.len(), "figure"), parts.join(", "))
    }

    /// The figures that became so, with their ratios.
    pub fn lines(&self, verdict: Change, wishes: Wishes) -> Vec<String> {
        let own = self.compared.iter().filter(|compared| compared.verdict == verdict);
        let lines = own.take(NAMED_MAX).map(|compared| self.line(compared, wishes));
        let more = self.count(verdict).saturating_sub(NAMED_MAX);
        lines.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }

    /// Cells and figures that A has of a case and B lacks: nobody knows whether they became worse.
    pub fn missing(&self) -> Vec<String> {
        let is_gone =
            |one: &&Uncompared| one.factors.is_some() && one.not_compared == only_in(true);
        let gone = self.uncompared.iter().filter(is_gone).take(NAMED_MAX);
        gone.map(|one| self.uncompared_line(one)).collect()
    }

    /// A figure, and what became of it: `border-64 (path, 64): messages 0.912 (0.880..0.940) times A's`.
    pub fn line(&self, compared: &Compared, wishes: Wishes) -> String {
        let name = self.name(&compared.case, Some(&compared.factors));
        let series = self.b.iter().find(|series| series.name == compared.case);
        let label = series.map(|series| series.metric(&compared.metric).label).unwrap_or_default();
        let ratio = compared.ratio.map(|_| format!(" {} times A's", ratio(compared)));
        let ratio = ratio.unwrap_or_default();
        let within = match compared.verdict {
            Change::Worse if !compared.is_beyond_margin => {
                format!(", perhaps within the margin of {} %", wishes.margin_percent)
            }
            _ => String::new(),
        };
        format!("{name}: {label}{ratio}{within}")
    }

    /// What a case or a cell of it is called: `border-64 (path, 64)`.
    fn name(&self, case: &str, cell: Option<&Factors>) -> String {
        let series = self.b.iter().chain(&self.a).find(|series| series.name == case);
        match series.zip(cell) {
            Some((series, cell)) => format!("{case} ({})", describe(cell, &series.order())),
            None => case.to_owned(),
        }
    }

    fn how_sure(&self, wishes: Wishes) -> Vec<String> {
        let mut lines = vec![format!(
            "A figure is worse or better if the intervals in which the true medians of A and B lie with 95 % do not \
             overlap; each needs {TRIALS_MIN} trials. B/A has the interval from the lower end of B by the upper end of \
             A to the upper end by the lower. Where nothing has changed, one figure in a hundred is called better or \
             worse; at most one in ten, however trials scatter"
        )];
        if self.count(Change::Worse) > 0 {
            lines.push(format!(
                "With --check a figure fails if all of its interval is worse than A's by more than {} %",
                wishes.margin_percent
            ));
        }
        lines.extend(self.differences.iter().map(difference));
        lines.extend(
            self.uncompared
                .iter()
                .map(|one| format!("Not compared: {}", self.uncompared_line(one))),
        );
        for Compared { case, a, b, .. } in &self.compared {
            let far = "are left out: the processors were nearer or farther";
            for (a, b, what) in [
                (a.failed, b.failed, "failed: it is undecided"),
                (a.other_state, b.other_state, far),
            ] {
                let line = format!("{case}: {a} trials of a cell in A and {b} in B {what}");
                lines.extend((a + b > 0).then_some(line));
            }
        }
        distinct(lines)
    }

    fn uncompared_line(&self, one: &Uncompared) -> String {
        let name = self.name(&one.case, one.factors.as_ref());
        let metric = one.metric.as_ref().map(|metric| format!(", {metric}")).unwrap_or_default();
        format!("{name}{metric}: {}", one.not_compared)
    }

    fn what_next(&self) -> Vec<String> {
        let names: Vec<&str> = self.b.iter().map(|series| series.name).collect();
        let names = names.join(" ");
        let mut lines = vec![format!(
            "a narrower interval from as many trials: siga lab run {names} --against OLD_SIGA, which measures both in turn"
        )];
        if self.count(Change::Undecided) > 0 {
            lines.push(format!("more trials in both: siga lab run {names} --trials 15"));
        }
        lines
    }
}

fn difference(one: &Difference) -> String {
    let Difference { case, differs, a, b } = one;
    let case = case.as_ref().map(|case| format!("{case}: ")).unwrap_or_default();
    format!("{case}A and B differ in {differs}: A has {a}; B has {b}")
}

/// A table for each metric: a row for each cell.
fn tables(series: &Series<'_>, compared: &[&Compared]) -> Vec<Block> {
    let table = |(metric, own): (&str, Vec<&Compared>)| {
        let shown = series.metric(metric);
        let medians = own.iter().flat_map(|one| [one.a.median, one.b.median]).flatten();
        let unit = unit::for_all(&shown.units, medians);
        let side = |side: Side| {
            let Some(median) = side.median else { return NOTHING.to_owned() };
            let text = show_interval(&shown.units, unit, median, side.interval);
            let few = side.interval.is_none().then(|| format!(" (of {})", side.trials));
            text + &few.unwrap_or_default()
        };
        let row = |one: &&Compared| {
            let cell = describe(&one.factors, &series.order());
            // In one line of the table.
            let verdict = match one.verdict {
                Change::Same => "no difference".to_owned(),
                other => other.to_string(),
            };
            vec![verdict, cell, side(one.a), side(one.b), ratio(one)]
        };
        let rows = own.iter().map(row).collect();
        let grid = Grid::of(&["in B", "cell", "A", "B", "B/A"], 2, rows);
        Block::Table(Grid { title: shown.heading(unit), ..grid })
    };
    let by_metric = grouped(compared.iter().map(|one| (one.metric.as_str(), *one)));
    by_metric.into_iter().map(table).collect()
}

/// The ratio with its interval: `0.912 (0.880..0.940)`.
fn ratio(one: &Compared) -> String {
    let shown = |ratio| show_interval(unit::PLAIN, None, ratio, one.interval);
    one.ratio.map_or(NOTHING.to_owned(), shown)
}
