//! A comparison as a report: what became worse first, then all figures, then how sure they are.

use super::{Change, Compared, Comparison, Difference, Uncompared, Wishes};
use crate::factor::describe;
use crate::report::series::Series;
use crate::report::table::NOTHING;
use crate::report::{Block, Grid, Report};
use crate::statistics::TRIALS_MIN;
use crate::unit::{self, three_digits};

impl Change {
    fn words(self) -> &'static str {
        match self {
            Change::Worse => "worse",
            Change::Undecided => "undecided",
            Change::Same => "no difference seen",
            Change::Better => "better",
        }
    }
}

/// Figures that are named one by one at the top.
const NAMED_MAX: usize = 20;

impl Comparison<'_> {
    /// The comparison of two results that are called so.
    pub fn report(&self, a: &str, b: &str, wishes: Wishes) -> Report {
        let mut blocks = vec![
            Block::Heading("A and B".into()),
            Block::Lines(vec![format!("A: {a}"), format!("B: {b}")]),
            Block::Text(self.sentence()),
        ];
        for (verdict, title) in [(Change::Worse, "Worse in B"), (Change::Better, "Better in B")] {
            let lines = self.lines(verdict, wishes);
            if !lines.is_empty() {
                blocks.extend([Block::Lines(vec![format!("{title}:")]), Block::List(lines)]);
            }
        }
        for series in &self.b {
            let mut own = self.compared.iter().filter(|one| one.case == series.name).peekable();
            if own.peek().is_none() {
                continue;
            }
            blocks.push(Block::Heading(series.name.to_owned()));
            blocks.extend(series.case.as_ref().map(|case| Block::Text(case.asks.clone())));
            blocks.extend(tables(series, &own.collect::<Vec<_>>()).into_iter().map(Block::Table));
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
        let part = |verdict, one: &str, many: &str| match self.count(verdict) {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let parts = [
            part(Change::Worse, "is worse in B", "are worse in B"),
            part(Change::Better, "is better", "are better"),
            part(Change::Same, "shows no difference", "show no difference"),
            part(Change::Undecided, "is undecided", "are undecided"),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        let figures = if self.compared.len() == 1 { "figure" } else { "figures" };
        format!("Of {} {figures} {}.", self.compared.len(), parts.join(", "))
    }

    /// The figures that became so, with their ratios.
    pub fn lines(&self, verdict: Change, wishes: Wishes) -> Vec<String> {
        let own = || self.compared.iter().filter(|compared| compared.verdict == verdict);
        let mut lines: Vec<String> =
            own().take(NAMED_MAX).map(|compared| self.line(compared, wishes)).collect();
        match own().count() {
            count if count > NAMED_MAX => lines.push(format!("and {} more", count - NAMED_MAX)),
            _ => {}
        }
        lines
    }

    /// Cells and figures that A has of a case and B lacks: nobody knows whether they became worse.
    pub fn missing(&self) -> Vec<String> {
        let is_gone = |one: &&Uncompared| one.factors.is_some() && one.not_compared == "only in A";
        let line = |one: &Uncompared| {
            let cell = one.factors.iter().flatten().map(|(name, level)| format!("{name} {level}"));
            let metric = one.metric.as_ref().map_or(String::new(), |metric| format!(": {metric}"));
            format!("{} ({}){metric}: only in A", one.case, cell.collect::<Vec<_>>().join(", "))
        };
        self.uncompared.iter().filter(is_gone).take(NAMED_MAX).map(line).collect()
    }

    /// A figure, and what became of it: `border-64 (path, 64): messages 0.912 (0.880..0.940) times A's`.
    pub fn line(&self, compared: &Compared, wishes: Wishes) -> String {
        let Compared { case, factors, metric, .. } = compared;
        let series = self.b.iter().find(|series| series.name == case);
        let (cell, label) = series.map_or_else(Default::default, |series| {
            (describe(factors, &series.order()), series.metric(metric).label)
        });
        let ratio = match compared.ratio {
            Some(_) => format!(" {} times A's", ratio(compared)),
            None => String::new(),
        };
        let within = match compared.verdict {
            Change::Worse if !compared.is_beyond_margin => {
                format!(", perhaps within the margin of {} %", wishes.margin_percent)
            }
            _ => String::new(),
        };
        format!("{case} ({cell}): {label}{ratio}{within}")
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
        lines.extend(self.uncompared.iter().map(|one| self.uncompared_line(one)));
        for one in &self.compared {
            let (a, b) = (one.a, one.b);
            let mut add = |a: usize, b: usize, what: &str| {
                let line = format!("{}: {a} trials of a cell in A and {b} in B {what}", one.case);
                if a + b > 0 && !lines.contains(&line) {
                    lines.push(line);
                }
            };
            add(a.failed, b.failed, "failed: it is undecided");
            add(
                a.other_state,
                b.other_state,
                "are left out: the processors were nearer or farther",
            );
        }
        lines
    }

    fn uncompared_line(&self, one: &Uncompared) -> String {
        let Uncompared { case, factors, metric, not_compared } = one;
        let series = self.a.iter().chain(&self.b).find(|series| series.name == case);
        let cell = factors.as_ref().zip(series);
        let cell = cell.map(|(cell, series)| format!(" ({})", describe(cell, &series.order())));
        let metric = metric.as_ref().map(|metric| format!(", {metric}"));
        let (cell, metric) = (cell.unwrap_or_default(), metric.unwrap_or_default());
        format!("Not compared: {case}{cell}{metric}: {not_compared}")
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
    format!("{case}A and B differ in {differs}: {a}, and {b}")
}

/// A table for each metric: a row for each cell.
fn tables(series: &Series<'_>, compared: &[&Compared]) -> Vec<Grid> {
    let mut metrics: Vec<&str> = Vec::new();
    for one in compared {
        if !metrics.contains(&one.metric.as_str()) {
            metrics.push(&one.metric);
        }
    }
    let table = |metric: &&str| {
        let own: Vec<&&Compared> = compared.iter().filter(|one| one.metric == **metric).collect();
        let shown = series.metric(metric);
        let sides = own.iter().flat_map(|one| [one.a, one.b]);
        let medians: Vec<f64> = sides.filter_map(|side| side.median).collect();
        let unit = unit::for_all(&shown.units, &medians);
        let side = |side: super::Side| {
            let Some(median) = side.median else { return NOTHING.to_owned() };
            let own = unit.unwrap_or_else(|| unit::for_one(&shown.units, median));
            let number = |number: f64| three_digits(number / own.scale);
            let short = if unit.is_some() { "" } else { &*own.short };
            let text = match side.interval {
                Some((least, most)) => {
                    format!("{} ({}..{})", number(median), number(least), number(most))
                }
                None => format!("{} (of {})", number(median), side.trials),
            };
            format!("{text} {short}").trim_end().to_owned()
        };
        let row = |one: &&&Compared| {
            let cell = describe(&one.factors, &series.order());
            vec![one.verdict.words().to_owned(), cell, side(one.a), side(one.b), ratio(one)]
        };
        Grid {
            title: shown.heading(unit),
            head: ["in B", "cell", "A", "B", "B/A"].map(str::to_owned).into(),
            words: 2,
            rows: own.iter().map(row).collect(),
            notes: Vec::new(),
        }
    };
    metrics.iter().map(table).collect()
}

/// The ratio with its interval: `0.912 (0.880..0.940)`.
fn ratio(one: &Compared) -> String {
    let Some(ratio) = one.ratio else { return NOTHING.to_owned() };
    match one.interval {
        Some((least, most)) => {
            format!("{} ({}..{})", three_digits(ratio), three_digits(least), three_digits(most))
        }
        None => three_digits(ratio),
    }
}
