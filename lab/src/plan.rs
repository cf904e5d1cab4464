//! What is measured in which order.

use std::time::Duration;

use host::near::right;

use crate::case::{Case, Form};
use crate::factor::{Factors, Level};

/// What the user wants different from what the cases say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Whether cases are to be run in their quick form, if they have one.
    pub quick: bool,
    /// Whether cases are to be run as the documents measured that they repeat.
    pub as_published: bool,
    /// How often each cell is measured.
    pub trials: Option<u32>,
    /// How long each trial counts, in seconds.
    pub seconds: Option<f64>,
    /// How long it is done before, in seconds.
    pub warm_up_seconds: Option<f64>,
    /// Factors, and the levels they are to have.
    pub set: Vec<(String, Vec<String>)>,
    /// Whether a second binary measures the same cells.
    pub against: bool,
}

/// Cases with all their cells, in order.
#[derive(Debug)]
pub struct Plan {
    /// The cases.
    pub jobs: Vec<Job>,
}

/// A case and what is measured for it.
#[derive(Debug)]
pub struct Job {
    /// The case, as it is wished for.
    pub case: Case,
    /// Its cells.
    pub cells: Vec<Factors>,
}

/// The next thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which of the jobs.
    pub job: usize,
    /// Which of its cells.
    pub cell: usize,
    /// Which trial, from 1.
    pub trial: u32,
}

/// What a trial takes beside its set-up, its warm-up and its window: starting processes, and ending them.
const OVERHEAD: Duration = Duration::from_millis(30);

impl Plan {
    /// For these cases, as the user wishes them.
    ///
    /// # Errors
    /// A wish that cannot be granted, and what could be.
    pub fn new(cases: Vec<Case>, wishes: &Wishes) -> Result<Plan, String> {
        let known = |name: &String| cases.iter().any(|case| case.factor(name).is_some());
        if let Some((name, _)) = wishes.set.iter().find(|(name, _)| !known(name)) {
            let mut names: Vec<&str> = cases.iter().flat_map(Case::factor_names).collect();
            names.sort_unstable();
            names.dedup();
            return Err(format!("there is no factor {name:?}: {}", right(name, &names)));
        }
        for (at, (name, levels)) in wishes.set.iter().enumerate() {
            if wishes.set[..at].iter().any(|(other, _)| other == name) {
                return Err(format!("{name} is set twice: must be one list, as {name}=1,2"));
            }
            are_known(name, levels, &cases)?;
        }
        let mut jobs = Vec::new();
        for case in cases {
            let Some(case) = as_wished(case, wishes)? else { continue };
            case.check_size().map_err(|wrong| format!("{}: {wrong}", case.name))?;
            let cells = if wishes.against { case.cells_of_both() } else { case.cells() };
            if !cells.is_empty() {
                jobs.push(Job { case, cells });
            }
        }
        Ok(Plan { jobs })
    }

    /// Leaves out the cells that `is_out` means, and cases of which nothing is left.
    pub fn leave_out(&mut self, is_out: impl Fn(&Factors) -> bool) {
        for job in &mut self.jobs {
            job.cells.retain(|cell| !is_out(cell));
        }
        self.jobs.retain(|job| !job.cells.is_empty());
    }

    /// Whether there is a cell that `is_meant`.
    pub fn has(&self, is_meant: impl Fn(&Factors) -> bool) -> bool {
        self.jobs.iter().flat_map(|job| &job.cells).any(is_meant)
    }

    /// All steps: case by case, trial by trial, and in each trial all cells one after the other, so that
    /// whatever comes over the machine meanwhile comes over all of them. Every second trial goes backward:
    /// no cell always has the same neighbour before it. The trials of a cell with two binaries are neighbours.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (job, Job { case, cells }) in self.jobs.iter().enumerate() {
            for trial in 1..=case.trials {
                let step = |cell| Step { job, cell, trial };
                let cells = 0..cells.len();
                if trial % 2 == 1 {
                    steps.extend(cells.map(step));
                } else {
                    steps.extend(cells.rev().map(step));
                }
            }
        }
        steps
    }
}

impl Job {
    /// About how long a trial of one of its cells takes.
    pub fn step_time(&self, cell: usize) -> Duration {
        let set_up = self.case.workload.set_up_time(&self.cells[cell]);
        set_up + self.case.warm_up + self.case.window + OVERHEAD
    }

    /// About how long all trials take.
    pub fn time(&self) -> Duration {
        let round: Duration = (0..self.cells.len()).map(|cell| self.step_time(cell)).sum();
        round * self.case.trials
    }
}

/// Whether each of these levels is one of some case's factor.
fn are_known(name: &str, levels: &[String], cases: &[Case]) -> Result<(), String> {
    for text in levels {
        let found = cases.iter().filter_map(|case| Some(case.level(case.factor(name)?, text)));
        let found: Vec<Result<_, String>> = found.collect();
        if found.iter().all(Result::is_err) {
            let mut rights: Vec<String> = found.into_iter().filter_map(Result::err).collect();
            rights.dedup();
            return Err(format!("{name} = {text:?}: {}", rights.join("; ")));
        }
    }
    Ok(())
}

/// The case as it is wished for; none if it knows none of the levels that one of its factors is to have.
fn as_wished(case: Case, wishes: &Wishes) -> Result<Option<Case>, String> {
    let case = match (wishes.as_published, wishes.quick) {
        (true, _) => {
            let name = case.name.clone();
            let right = "must be a case whose file has [as_published]";
            let wrong = || format!("{name} says nothing of how a document measured: {right}");
            case.like_published().ok_or_else(wrong)?
        }
        (false, true) => case.quickly(),
        (false, false) => case,
    };
    let mut form = Form {
        trials: wishes.trials,
        seconds: wishes.seconds,
        warm_up_seconds: wishes.warm_up_seconds,
        ..Form::default()
    };
    form.check(&case).map_err(|wrong| wrong.to_string())?;
    for (name, wished) in &wishes.set {
        let Some(factor) = case.factor(name) else { continue };
        let levels = wished.iter().filter_map(|text| case.level(factor, text).ok());
        let levels: Vec<Level> = levels.collect();
        if levels.is_empty() {
            return Ok(None);
        }
        form.factors.insert(name.clone(), levels);
    }
    Ok(Some(case.in_form(&form)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factor::describe;
    use crate::library;
    use host::config::Source;

    fn case(name: &str, workload: &str, factors: &str) -> Case {
        let text = format!(
            "name = \"{name}\"\nasks = \"?\"\nworkload = \"{workload}\"\ntrials = 3\nseconds = 1\n\
             warm_up_seconds = 0.5\n[factors]\n{factors}"
        );
        Case::parse(&Source::of("c.toml", &text), &|_| unreachable!("it names none")).unwrap()
    }

    fn two_cases() -> Vec<Case> {
        vec![
            case("stream", "message-stream", "transport = [\"path\", \"pipe\"]\nbytes = [1, 64]"),
            case("idle", "path-idle", "paths = [5]"),
        ]
    }

    fn walk(plan: &Plan) -> Vec<String> {
        let line = |step: Step| {
            let Job { case, cells } = &plan.jobs[step.job];
            let cell = describe(&cells[step.cell], &case.order());
            format!("{} {}: {cell}", case.name, step.trial)
        };
        plan.steps().into_iter().map(line).collect()
    }

    #[test]
    fn trials_are_interleaved_and_every_second_goes_backward() {
        let wishes = Wishes { trials: Some(2), ..Wishes::default() };
        let plan = Plan::new(two_cases(), &wishes).unwrap();
        assert_eq!(
            walk(&plan),
            [
                "stream 1: path, 1, adaptive",
                "stream 1: pipe, 1, block",
                "stream 1: path, 64, adaptive",
                "stream 1: pipe, 64, block",
                "stream 2: pipe, 64, block",
                "stream 2: path, 64, adaptive",
                "stream 2: pipe, 1, block",
                "stream 2: path, 1, adaptive",
                "idle 1: 5, adaptive",
                "idle 2: 5, adaptive",
            ]
        );
        let time: Duration = plan.jobs.iter().map(Job::time).sum();
        assert_eq!(time, Duration::from_millis(10 * 1530));
    }

    #[test]
    fn case_is_run_as_its_document_measured_if_it_repeats_one() {
        let wishes = Wishes { as_published: true, trials: Some(2), ..Wishes::default() };
        let error = Plan::new(two_cases(), &wishes).unwrap_err();
        let right = "stream says nothing of how a document measured: must be a case whose file has [as_published]";
        assert_eq!(error, right);
        let draft = library::cases().into_iter().find(|case| case.name == "qdio-gigabit").unwrap();
        let Plan { jobs } = Plan::new(vec![draft.clone()], &wishes).unwrap();
        assert_eq!((jobs[0].case.trials, jobs[0].case.window.as_secs()), (2, 150));
        assert_eq!(jobs[0].cells, draft.cells());
    }

    #[test]
    fn cells_are_left_out_and_cases_that_have_no_others() {
        let mut plan = Plan::new(two_cases(), &Wishes::default()).unwrap();
        plan.leave_out(|_| false);
        assert_eq!(plan.jobs.len(), 2);
        plan.leave_out(|cell| cell.contains_key("paths"));
        assert_eq!(plan.jobs.iter().map(|job| &*job.case.name).collect::<Vec<_>>(), ["stream"]);
        let pipe = Level::Word("pipe".into());
        plan.leave_out(|cell| cell.get("transport") == Some(&pipe));
        assert_eq!(plan.jobs[0].cells.len(), 2);
    }

    #[test]
    fn trials_of_two_binaries_stand_next_to_each_other() {
        let cases =
            vec![case("stream", "message-stream", "bytes = [1, 64]\ntransport = [\"pipe\"]")];
        let wishes = Wishes { trials: Some(2), against: true, ..Wishes::default() };
        let plan = Plan::new(cases, &wishes).unwrap();
        assert_eq!(
            walk(&plan),
            [
                "stream 1: pipe, 1, block, this",
                "stream 1: pipe, 1, block, against",
                "stream 1: pipe, 64, block, this",
                "stream 1: pipe, 64, block, against",
                "stream 2: pipe, 64, block, against",
                "stream 2: pipe, 64, block, this",
                "stream 2: pipe, 1, block, against",
                "stream 2: pipe, 1, block, this",
            ]
        );
    }

    #[test]
    fn wishes_go_to_the_cases_that_know_the_factor() {
        let set = vec![("bytes".to_owned(), vec!["8".to_owned(), "1 KiB".to_owned()])];
        let wishes = Wishes { trials: Some(1), seconds: Some(0.25), set, ..Wishes::default() };
        let plan = Plan::new(two_cases(), &wishes).unwrap();
        assert_eq!(plan.jobs[0].case.window, Duration::from_millis(250));
        let walk = walk(&plan);
        assert_eq!(walk.len(), 5);
        assert_eq!(walk[2], "stream 1: path, 1024, adaptive");
    }

    #[test]
    fn wishes_go_before_what_a_quick_form_says() {
        let case = case(
            "stream",
            "message-stream",
            "bytes = [1, 64]\n[quick]\ntrials = 2\nseconds = 0.1\n[quick.factors]\nbytes = [64]",
        );
        let quick = |trials| {
            let wishes = Wishes { quick: true, trials, ..Wishes::default() };
            Plan::new(vec![case.clone()], &wishes).unwrap()
        };
        assert_eq!((quick(None).steps().len(), quick(Some(5)).steps().len()), (2 * 2, 5 * 2));
        assert_eq!(quick(None).jobs[0].case.window, Duration::from_millis(100));
        let usual = Plan::new(vec![case.clone()], &Wishes::default()).unwrap();
        assert_eq!(usual.steps().len(), 3 * 2 * 2);
    }

    #[test]
    fn levels_go_to_the_cases_that_know_them() {
        let cases =
            || vec![case("stream", "message-stream", ""), case("ask", "message-exchange", "")];
        let walked = |levels: &[&str]| {
            let levels = levels.iter().map(|level| (*level).to_owned()).collect();
            let set = vec![("transport".to_owned(), levels)];
            walk(
                &Plan::new(cases(), &Wishes { trials: Some(1), set, ..Wishes::default() }).unwrap(),
            )
        };
        assert_eq!(
            walked(&["pipe", "cache-line-2"]),
            ["stream 1: pipe, 64, block", "ask 1: pipe, 64, block", "ask 1: cache-line-2, spin"]
        );
        assert_eq!(walked(&["wake"]), ["ask 1: wake, block"]);
        let skipping = case("ask", "message-exchange", "");
        let skip = vec![[("bytes".to_owned(), Level::Number(64))].into()];
        let plan = Plan::new(vec![Case { skip, ..skipping }], &Wishes::default()).unwrap();
        assert!(plan.jobs.is_empty(), "nothing is left of the case");
    }

    #[test]
    fn systems_are_chosen_among_those_of_the_case() {
        let levels = "transport = [\"path\"]\nbytes = [64]\nsystem = [\"open\", \"../few.toml\"]";
        let of = |level: &str| {
            let set = vec![("system".to_owned(), vec![level.to_owned()])];
            let wishes = Wishes { trials: Some(1), set, ..Wishes::default() };
            Plan::new(vec![case("stream", "message-stream", levels)], &wishes)
        };
        assert_eq!(walk(&of("few").unwrap()), ["stream 1: path, 64, adaptive, few"]);
        let error = of("many").unwrap_err();
        assert_eq!(error, "system = \"many\": must be one of open, few");
    }

    #[test]
    fn wishes_that_make_too_many_cells_or_records_are_refused() {
        let numbers = |from: u64, count: u64| (from..from + count).map(|n| n.to_string()).collect();
        let set =
            vec![("bytes".to_owned(), numbers(1, 1001)), ("ring".to_owned(), numbers(4096, 100))];
        let stream = || case("stream", "message-stream", "transport = [\"copy-limit\"]");
        let wishes = Wishes { set, ..Wishes::default() };
        let error = Plan::new(vec![stream()], &wishes).unwrap_err();
        assert_eq!(error, "stream: 100 x 1001 = 100100 cells: must be at most 100000");
        let recorded = Case { interval: Some(Duration::from_millis(1)), ..stream() };
        let wishes = Wishes { seconds: Some(60.0), ..Wishes::default() };
        let error = Plan::new(vec![recorded.clone()], &wishes).unwrap_err();
        assert_eq!(
            error,
            "stream: interval_ms = 1: 60000 records of each party in 60 s: must be at most 36000, with an interval_ms of 2 or more"
        );
        let wishes = Wishes { seconds: Some(36.0), ..Wishes::default() };
        assert!(Plan::new(vec![recorded], &wishes).is_ok());
    }

    #[test]
    fn wishes_that_cannot_be_granted_are_refused_with_the_cure() {
        let refused = |wishes: &Wishes| Plan::new(two_cases(), wishes).unwrap_err();
        let set = |name: &str, level: &str| Wishes {
            set: vec![(name.to_owned(), vec![level.to_owned()])],
            ..Wishes::default()
        };
        assert_eq!(refused(&set("byte", "1")), "there is no factor \"byte\": did you mean bytes?");
        assert_eq!(
            refused(&set("wait", "sleep")),
            "wait = \"sleep\": must be one of spin, adaptive, block"
        );
        let set = ["1", "2"].map(|level| ("bytes".to_owned(), vec![level.to_owned()])).to_vec();
        let wishes = Wishes { set, ..Wishes::default() };
        assert_eq!(refused(&wishes), "bytes is set twice: must be one list, as bytes=1,2");
        let wishes = Wishes { trials: Some(0), ..Wishes::default() };
        assert_eq!(refused(&wishes), "trials = 0: must be 1 to 1000");
        let wishes = Wishes { seconds: Some(0.0), ..Wishes::default() };
        assert_eq!(refused(&wishes), "seconds = 0: must be 0.001 to 3600");
    }
}
