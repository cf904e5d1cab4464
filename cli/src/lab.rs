//! `siga lab`: measure.

mod compare;
mod history;
mod page;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};
use lab::against::{Against, AgainstError};
use lab::case::Case;
use lab::factor::{Factors, describe, is_against};
use lab::library::{self, SelectError};
use lab::machine::{Machine, processors};
use lab::peers::{self, Peers};
use lab::plan::{Job, Plan, Wishes};
use lab::record::{self, Record, Results};
use lab::redefine::redefine;
use lab::reduce::reduce;
use lab::report::{self, Judgement, Verdict};
use lab::run::Watcher;
use lab::store::{self, LAST, Store};
use lab::transport::{TRANSPORTS, Transport};
use lab::trial::{Crew, TrialError};
use serde_json::json;

use crate::outcome::Outcome;
use crate::output::{Output, counted, print, print_json, say};
use crate::shell::CaseName;

/// Measure this machine: run cases, print their tables
///
/// A case file defines what is measured, under which levels of which factors. The cases that come with siga
/// compare messages over paths with every other way between two processes, and with what memory allows.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LabCommand {
    List(List),
    Run(Run),
    Report(Report),
    Compare(compare::Compare),
    History(history::History),
    Page(page::Page),
}

/// List cases, their questions and their factors
#[derive(Debug, clap::Args)]
struct List {
    /// Names of cases or of groups of cases, beginnings of names (device-mp), or case files [default: all that come with siga]
    #[arg(value_name = "CASE", value_parser = CaseName, hide_possible_values = true)]
    cases: Vec<String>,
    #[command(flatten)]
    output: Output,
}

/// Run cases and print their tables
///
/// Without CASE, runs the groups `messages` and `studies` and the case `tcp-crr` in their quick forms, which takes about a minute, and
/// prints one screen. The run is kept: `siga lab report last` prints its tables.
///
/// Exit code: 0 if every trial has a result or cannot have one on this machine, 1 if a trial failed, 2 for wrong
/// use. With --check: 1 if a claim does not hold, 3 if a trial failed or anything else went wrong, 4 if no claim
/// fails and some are undecided.
#[derive(Debug, clap::Args)]
struct Run {
    /// Names of cases or of groups of cases, beginnings of names (device-mp), or case files [default: messages studies tcp-crr, and --quick]
    #[arg(value_name = "CASE", value_parser = CaseName, hide_possible_values = true)]
    cases: Vec<String>,
    /// Run the quick form of each case that has one: fewer levels, fewer or shorter trials
    #[arg(long)]
    quick: bool,
    /// Also run the cases that a case names for this, with all levels of its factors. The time that all takes is printed first
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Run as the documents measured that the cases repeat: their lengths, trials and samples. The time that all takes is printed
    /// first, and the report names the trial of each cell that is nearest to the median
    #[arg(long, conflicts_with_all = ["quick", "full"], requires = "cases")]
    as_published: bool,
    /// Trials per cell (overrides the case)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    trials: Option<u32>,
    /// Seconds per trial (overrides the case)
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Seconds of warm-up before each trial (overrides the case)
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// Levels of a factor (overrides the case). May be repeated
    #[arg(long, value_name = "FACTOR=LEVEL,..", value_parser = setting)]
    set: Vec<(String, Vec<String>)>,
    /// Measure the same cells with another siga binary, for example an older build, in turn with this one
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Measure Aeron and iceoryx2 with this siga-peers [default: beside siga, or in the repository's peers] [env:
    /// SIGA_PEERS]
    #[arg(long, value_name = "PATH")]
    peers: Option<PathBuf>,
    /// Print each trial as a line of JSON, and no tables; or append the lines to FILE, for `siga lab report`
    #[arg(long, value_name = "FILE")]
    json: Option<Option<PathBuf>>,
    /// Exit with 1 if a claim does not hold, with 4 if some are undecided, and with 3 if a trial failed or anything
    /// else went wrong
    #[arg(long)]
    check: bool,
}

/// Print the tables of kept results
///
/// Of a case that was run several times, the latest run counts.
#[derive(Debug, clap::Args)]
struct Report {
    /// Files that `siga lab run --json` wrote; `last` is the latest run of this user, and `siga lab history` names the others
    #[arg(value_name = "FILE", required_unless_present = "published")]
    files: Vec<PathBuf>,
    /// Instead of results: the published tables of these cases and drafts, or of all
    #[arg(long, value_name = "CASE", num_args = 0.., conflicts_with = "files")]
    published: Option<Vec<String>>,
    /// Output format
    #[arg(long, value_enum, default_value = "text", conflicts_with = "json")]
    format: Format,
    /// Show the results of these cases as their files say now, with metrics that were defined after the run
    #[arg(long, value_name = "CASE")]
    case: Vec<String>,
    /// Compute the figures from the interval records beside FILE, not from what the parties reported at the end
    #[arg(long, conflicts_with = "published")]
    intervals: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// Text, as wide as the terminal
    Text,
    /// Markdown
    Markdown,
    /// A page in one file
    Html,
    /// Raw numbers for spreadsheets
    Csv,
}

fn setting(text: &str) -> Result<(String, Vec<String>), String> {
    let (factor, levels) = text.split_once('=').ok_or("must be like bytes=64,1000")?;
    let levels = levels.split(',').map(|level| level.trim().to_owned()).collect();
    Ok((factor.trim().to_owned(), levels))
}

/// Runs the lab.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    match &arguments.command {
        LabCommand::List(arguments) => list(arguments),
        LabCommand::Run(arguments) => run_cases(arguments),
        LabCommand::Report(arguments) => print_report(arguments),
        LabCommand::Compare(arguments) => compare::run(arguments),
        LabCommand::History(arguments) => history::run(arguments),
        LabCommand::Page(arguments) => page::make(arguments),
    }
}

fn select(names: &[String]) -> Result<Vec<Case>, Outcome> {
    library::select(names).map_err(refused)
}

fn refused(error: SelectError) -> Outcome {
    match error {
        SelectError::File(error) => error.into(),
        unknown => Outcome::Usage(unknown.to_string()),
    }
}

fn list(arguments: &List) -> Result<(), Outcome> {
    let cases =
        if arguments.cases.is_empty() { library::cases() } else { select(&arguments.cases)? };
    let plan = Plan::new(cases, &Wishes::default()).map_err(Outcome::Usage)?;
    if arguments.output.json {
        plan.jobs.iter().map(as_json).try_for_each(|case| print_json(&case))
    } else {
        let cases: Vec<String> = plan.jobs.iter().map(as_text).collect();
        print(cases.join("\n"))?;
        print(transports())?;
        if arguments.cases.is_empty() {
            print(not_built_yet())?;
        }
        print(
            "A cell has the levels that apply together: combinations that differ in others are one cell.\nRun them: siga lab run CASE.. --set FACTOR=LEVEL,..   Without CASE: messages, studies and tcp-crr, quick forms",
        )
    }
}

/// The drafts, with the workloads that they wait for.
fn not_built_yet() -> String {
    let drafts = library::drafts().into_iter();
    let drafts = drafts.map(|draft| format!("    {} ({})\n", draft.name, draft.workload.name));
    let drafts: String = drafts.collect();
    format!("\nNot built yet; what was published: siga lab report --published CASE\n{drafts}")
}

/// Describes each transport in one line.
fn transports() -> String {
    let line = |transport: &Transport| format!("    {:20} {}\n", transport.name, transport.meaning);
    format!("transports\n{}", TRANSPORTS.iter().map(line).collect::<String>())
}

fn as_text(job: &Job) -> String {
    let case = &job.case;
    let group = case.group.as_ref().map_or(String::new(), |group| format!(" ({group})"));
    let time = about(job.time());
    let cells = job.cells.len();
    let mut text = format!("{}{group}, {cells} cells, {time}\n    {}\n", case.name, case.asks);
    if !case.full.is_empty() {
        text += &format!("    with --full also {}\n", case.full.join(", "));
    }
    for (factor, levels) in &case.factors {
        let levels: Vec<String> = levels.iter().map(ToString::to_string).collect();
        let (name, meaning, domain) = (factor.name, factor.meaning, &factor.domain);
        text += &format!("    {name}: {}\n", levels.join(", "));
        text += &format!("        {meaning}; {domain}\n");
    }
    text
}

fn as_json(job: &Job) -> serde_json::Value {
    let case = &job.case;
    let factors = case.factors.iter().map(|(factor, levels)| {
        let about = json!({
            "levels": levels, "meaning": factor.meaning, "may_be": factor.domain.to_string(),
        });
        (factor.name.to_owned(), about)
    });
    json!({
        "name": case.name,
        "group": case.group,
        "asks": case.asks,
        "workload": case.workload.name,
        "factors": factors.collect::<serde_json::Map<_, _>>(),
        "metrics": case.workload.metrics(),
        "trials": case.trials,
        "cells": job.cells.len(),
        "time_s": job.time().as_secs_f64(),
    })
}

fn print_report(arguments: &Report) -> Result<(), Outcome> {
    if let Some(names) = &arguments.published {
        let cases = library::published(names).map_err(refused)?;
        if arguments.output.json {
            return report::published_cells(&cases).iter().try_for_each(print_json);
        }
        return match arguments.format {
            Format::Csv => print(report::published_csv(&cases).trim_end()),
            format => show(&report::published(&cases), format),
        };
    }
    let cases = if arguments.case.is_empty() { Vec::new() } else { select(&arguments.case)? };
    let (mut records, mut notes) = (Vec::new(), Vec::new());
    for file in &arguments.files {
        let (file, mut of_file) = results_of(file)?;
        cases.iter().for_each(|case| redefine(&mut of_file, case));
        if arguments.intervals {
            let reduced = reduce(&mut of_file, &file);
            if reduced.trials == 0 {
                let why = reduced.lines().join("\n  ");
                return Err(Outcome::No(format!(
                    "no figure comes from interval records:\n  {why}"
                )));
            }
            notes.extend(reduced.lines());
        }
        records.extend(of_file);
    }
    if arguments.output.json || matches!(arguments.format, Format::Csv) {
        notes.iter().for_each(say);
        let cut = report::unfinished(&records);
        cut.iter().for_each(|sentence| say(format_args!("warning: {sentence}")));
    }
    if arguments.output.json {
        report::figures(&records).iter().try_for_each(print_json)?;
        report::judgements(&records).iter().try_for_each(print_json)?;
        return report::failures(&records).iter().try_for_each(print_json);
    }
    match arguments.format {
        Format::Html => print(report::page(&records, &notes).trim_end()),
        Format::Csv => print(report::csv(&records).trim_end()),
        format if arguments.intervals => show(&report::report(&records).noting(notes), format),
        format => show(&report::report(&records), format),
    }
}

/// Prints a report.
fn show(report: &report::Report, format: Format) -> Result<(), Outcome> {
    let text = match format {
        Format::Text => report::text(report, width()),
        Format::Markdown => report::markdown(report),
        Format::Html => report::html(report),
        Format::Csv => {
            let right = "must be --json, or another format";
            return Err(Outcome::Usage(format!("this has no form as CSV: {right}")));
        }
    };
    print(text.trim_end())
}

/// The results that a user names: of a file, or of a run that is kept; and the file.
fn results_of(name: &Path) -> Result<(PathBuf, Vec<Record>), Outcome> {
    let run = name.to_str().filter(|name| store::is_run_name(name));
    let Some(run) = run else { return Ok((name.to_owned(), record::read(name)?)) };
    let store = Store::of_user().ok_or_else(no_store)?;
    let found = store.find(run).map_err(|error| unlisted(&store, &error))?;
    let file = found.ok_or_else(|| match run {
        LAST => Outcome::no("no run is kept yet: siga lab run"),
        _ => {
            let right = "siga lab history lists them";
            Outcome::Usage(format!("no run {run} is kept: {right}; a file of this name is ./{run}"))
        }
    })?;
    let records = record::read(&file)?;
    if run == LAST {
        return last_whole(&store, file, records);
    }
    Ok((file, records))
}

/// The latest run that is whole: what was interrupted by mistake must not be taken for it. If there is none, the latest of all.
fn last_whole(
    store: &Store,
    file: PathBuf,
    records: Vec<Record>,
) -> Result<(PathBuf, Vec<Record>), Outcome> {
    let Some(cut) = record::interrupted(&records).pop() else { return Ok((file, records)) };
    let runs = store.runs().map_err(|error| unlisted(store, &error))?;
    let earlier = runs.into_iter().rev().filter(|run| run.bytes > 0).skip(1);
    // One that cannot be read is none that is whole.
    let read = earlier.filter_map(|run| Some((record::read(&run.file).ok()?, run.file)));
    let mut whole = read.filter(|(records, _)| record::interrupted(records).is_empty());
    let Some((records, earlier)) = whole.next() else { return Ok((file, records)) };
    say(format_args!(
        "{}; last is the latest that is whole, and 1 the other",
        cut.sentence(&"the latest run")
    ));
    Ok((earlier, records))
}

/// There is no place where runs are kept.
const NO_STORE: &str = "no run is kept: XDG_STATE_HOME or HOME must be an absolute path";

fn no_store() -> Outcome {
    Outcome::no(NO_STORE)
}

fn unlisted(store: &Store, error: &io::Error) -> Outcome {
    Outcome::No(format!("the runs in {} cannot be listed: {error}", store.directory().display()))
}

/// What goes wrong in a check: 1 is the answer no, and nothing else.
fn broken(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::No(why) => Outcome::Broken(why),
        Outcome::File(error) if error.may_pass => Outcome::Broken(error.to_string()),
        Outcome::Unread => Outcome::Broken("the reader of the results is gone".to_owned()),
        other => other,
    }
}

/// Columns of the terminal, or of text that goes elsewhere.
fn width() -> u16 {
    comfy_table::Table::new().width().unwrap_or(report::WIDTH)
}

/// Where the results of a run go: to what the user names, and into the user's store. A store that cannot be
/// written is no reason not to measure.
fn results(arguments: &Run) -> Result<Results, Outcome> {
    let mut results = Results::default();
    match &arguments.json {
        None => {}
        Some(Some(file)) => results.append_to(file).map_err(|error| {
            Outcome::No(format!("cannot append to {}: {error}", file.display()))
        })?,
        Some(None) => {
            let output = io::stdout().as_fd().try_clone_to_owned().map_err(Outcome::no)?;
            results.write_to(File::from(output));
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let Some(store) = Store::of_user() else {
        say(format_args!("warning: {NO_STORE}"));
        return Ok(results);
    };
    let mut keep = |store: &Store| {
        let (path, file) = store.begin(now.as_millis() as u64)?;
        results.began_ms = store::when(&path).or(Some(now.as_millis() as u64));
        results.write_spare_to(path, file);
        Ok::<(), io::Error>(())
    };
    if let Err(error) = keep(&store) {
        let place = store.directory().display();
        say(format_args!("warning: the run is not kept in {place}: {error}"));
    }
    // Of two runs that begin together one has its file first, and the other sees that.
    let mut others = store.runs().unwrap_or_default();
    others.retain(|other| {
        Some(other.began_ms) != results.began_ms && store::is_under_way(&other.file)
    });
    for other in others {
        let process = other.writer().map_or_else(String::new, |id| format!(", process {id}"));
        let began = store::date(other.began_ms);
        say(format_args!(
            "warning: another run is under way, which began at {began} UTC{process}: they disturb each other"
        ));
    }
    Ok(results)
}

fn run_cases(arguments: &Run) -> Result<(), Outcome> {
    let records = measure(arguments);
    if !arguments.check {
        return records.map(|_| ());
    }
    let records = records.map_err(broken)?;
    check(&report::judgements(&records), matches!(arguments.json, Some(None)))
}

/// Runs cases, and prints and keeps their results.
fn measure(arguments: &Run) -> Result<Vec<Record>, Outcome> {
    if let Some(Some(file)) = &arguments.json {
        // In `--json CASE` the case is meant to be run, not to be a file.
        let name = file.display().to_string();
        if name == "-" {
            let right = "must be a file; --json alone, behind the cases, prints to standard output";
            return Err(Outcome::Usage(format!("--json -: {right}")));
        }
        let is_case_file = file.extension().is_some_and(|extension| extension == "toml");
        if is_case_file || library::select(std::slice::from_ref(&name)).is_ok() {
            let right = "this is a case: put --json behind it";
            return Err(Outcome::Usage(format!("--json {name}: {right}")));
        }
    }
    let mut cases = select(&arguments.cases)?;
    if arguments.full {
        cases = library::in_full(cases).map_err(refused)?;
    }
    let wishes = Wishes {
        quick: arguments.quick || (arguments.cases.is_empty() && !arguments.full),
        as_published: arguments.as_published,
        trials: arguments.trials,
        seconds: arguments.seconds,
        warm_up_seconds: arguments.warm_up,
        set: arguments.set.clone(),
        against: arguments.against.is_some(),
    };
    let mut plan = Plan::new(cases, &wishes).map_err(Outcome::Usage)?;
    let nothing = |why: &str| Outcome::Usage(format!("nothing to measure: {why}"));
    if plan.jobs.is_empty() {
        return Err(nothing("no case has a cell with these levels"));
    }
    // The other binary may have been built without them.
    plan.leave_out(|cell| is_against(cell) && peers::measure(cell));
    let (peers, why) = find_peers(arguments, &mut plan)?;
    if plan.jobs.is_empty() {
        return Err(nothing(&why.unwrap_or_default()));
    }
    if let Some(why) = why {
        say(&why);
    }
    let against = arguments.against.as_deref().map(Against::new).transpose();
    let against = against.map_err(|error| match error {
        AgainstError::NotSiga { .. } => Outcome::Usage(error.to_string()),
        AgainstError::This(_) => Outcome::no(error),
    })?;
    let mut results = results(arguments)?;
    let machine = Machine::here();
    let short = plan.jobs.iter().filter_map(|job| report::too_short(&job.case));
    for warning in machine.warnings().into_iter().chain(short) {
        say(format_args!("warning: {warning}"));
    }
    let program = std::env::current_exe().map_err(Outcome::no)?;
    let worker = move || {
        let mut command = Command::new(&program);
        command.arg("lab-worker");
        command
    };
    let crew = Crew { peers, processors: processors(), ..Crew::new(worker) };
    if arguments.full || arguments.as_published {
        let cells: usize = plan.jobs.iter().map(|job| job.cells.len()).sum();
        let names: Vec<&str> = plan.jobs.iter().map(|job| &*job.case.name).collect();
        let time = about(plan.jobs.iter().map(Job::time).sum());
        let names = names.join(", ");
        say(format_args!("{names}: {cells} cells, {time} in all if the machine does nothing else"));
    }
    let mut progress = Progress::of(&plan);
    let outcome =
        lab::run::run(&plan, &crew, against.as_ref(), &machine, Some(&mut results), &mut progress);
    progress.bar.finish_and_clear();
    let outcome = outcome?;
    if let Some(error) = &outcome.unrecorded {
        say(format_args!("warning: no interval records are kept: {error}"));
    }
    if let Some(error) = &results.lost {
        say(format_args!("warning: the run is not kept: {error}"));
    }
    let records = outcome.records;
    let report = match arguments.cases.as_slice() {
        [] if !arguments.full => report::first_screen(&records, width()),
        _ => report::text(&report::report(&records), width()),
    };
    let printed = match arguments.json {
        // The trials were the result.
        Some(None) => Ok(()),
        _ => print(report.trim_end()),
    };
    if let Some(error) = outcome.unkept {
        if error.kind() == ErrorKind::BrokenPipe {
            return Err(Outcome::Unread);
        }
        let error = format!(
            "cannot keep the results: {error}; the run ended with the first trial not kept"
        );
        return Err(Outcome::No(error));
    }
    match outcome.failed {
        0 => printed.map(|()| records),
        failed => {
            let failed = counted(failed, "trial");
            Err(Outcome::No(format!("{failed} failed, see above")))
        }
    }
}

/// Checks that each claim that could be judged holds. Each claim has a line, on standard error if the results of trials
/// are on standard output.
fn check(judged: &[Judgement], is_beside_trials: bool) -> Result<(), Outcome> {
    for judgement in judged {
        match is_beside_trials {
            true => say(judgement.line()),
            false => print(judgement.line())?,
        }
    }
    let of = |wanted: Verdict| -> Vec<String> {
        let those = judged.iter().filter(|judgement| judgement.verdict == wanted);
        those.map(|judgement| format!("{}: {}", judgement.case, judgement.claim)).collect()
    };
    let named = |claims: &[String], one: &str, many: &str| match claims {
        [claim] => format!("1 claim {one}: {claim}"),
        _ => format!("{} claims {many}:\n  {}", claims.len(), claims.join("\n  ")),
    };
    let (failing, undecided) = (of(Verdict::Fails), of(Verdict::Undecided));
    if !failing.is_empty() {
        return Err(Outcome::No(named(&failing, "does not hold", "do not hold")));
    }
    if !undecided.is_empty() {
        let more = "more trials or longer ones may decide: --trials, --seconds";
        let named = named(&undecided, "is undecided", "are undecided");
        return Err(Outcome::Undecided(format!("{named}\n{more}")));
    }
    Ok(())
}

/// The program that measures peers, if the plan needs it. A program that the user names must be the right
/// one; where there is none, the plan goes on without peers, and the text says why.
fn find_peers(
    arguments: &Run,
    plan: &mut Plan,
) -> Result<(Option<Peers>, Option<String>), Outcome> {
    let at = |path: &Path| Peers::at(path).map_err(|error| Outcome::Usage(error.to_string()));
    // A program that is named must be right, though nothing needs it.
    let named = arguments.peers.as_deref().map(at).transpose()?;
    if !plan.has(peers::measure) {
        return Ok((None, None));
    }
    // An empty variable is none.
    let of_environment = || std::env::var_os("SIGA_PEERS").filter(|path| !path.is_empty());
    if named.is_some() {
        return Ok((named, None));
    }
    if let Some(path) = of_environment().map(PathBuf::from) {
        return Ok((Some(at(&path)?), None));
    }
    match Peers::find() {
        Ok(peers) => Ok((Some(peers), None)),
        Err(why) => {
            plan.leave_out(peers::measure);
            Ok((None, Some(why.to_string())))
        }
    }
}

/// A time as people say it.
fn about(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("about {} s", seconds.max(1)),
        seconds => format!("about {} min", seconds.div_ceil(60)),
    }
}

/// Shows what is running, how far it is, and how long it will take: a bar on a terminal, a line for each
/// case elsewhere.
struct Progress {
    bar: ProgressBar,
    /// Work that has been done when each step begins, and at the end, in milliseconds.
    done_ms: Vec<u64>,
    /// The case that is running.
    case: String,
    /// When the first step began.
    began: Option<Instant>,
}

/// Work that has to be done before the time left is estimated from it, in milliseconds.
const TELLING_MS: u64 = 2000;

impl Progress {
    fn of(plan: &Plan) -> Progress {
        let mut done_ms = vec![0];
        for step in plan.steps() {
            let time = plan.jobs[step.job].step_time(step.cell).as_millis() as u64;
            done_ms.push(done_ms.last().copied().unwrap_or_default() + time);
        }
        // Elsewhere than on a terminal it hides by itself.
        let bar = ProgressBar::new(done_ms.last().copied().unwrap_or_default());
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {wide_msg}");
        bar.set_style(style.expect("the template is valid"));
        Progress { bar, done_ms, case: String::new(), began: None }
    }

    /// Says something that stays.
    fn say(&self, line: &str) {
        self.bar.suspend(|| say(line));
    }
}

impl Watcher for Progress {
    fn begins(&mut self, step: usize, job: &Job, cell: &Factors, trial: u32) {
        let case = &job.case;
        if self.bar.is_hidden() && self.case != case.name {
            let (name, cells) = (&case.name, counted(job.cells.len(), "cell"));
            let trials = counted(case.trials as usize, "trial");
            let time = about(job.time());
            self.say(&format!("{name}: {cells}, {trials} each, {time}"));
        }
        self.case.clone_from(&case.name);
        let done = self.done_ms[step];
        let left = Duration::from_millis(self.done_ms[self.done_ms.len() - 1] - done);
        let took = self.began.get_or_insert_with(Instant::now).elapsed();
        let left = match done {
            ..TELLING_MS => left,
            _ => left.mul_f64(took.as_secs_f64() * 1e3 / done as f64),
        };
        self.bar.set_position(done);
        let cell = describe(cell, &case.order());
        self.bar.set_message(format!(
            "{} left: {}, trial {trial} of {}: {cell}",
            about(left),
            case.name,
            case.trials
        ));
    }

    fn failed(&mut self, job: &Job, cell: &Factors, trial: u32, error: &TrialError) {
        // What a machine does not allow, it does not allow the next time either.
        if trial > 1 && matches!(error, TrialError::Unable(_)) {
            return;
        }
        let cell = describe(cell, &job.case.order());
        self.say(&format!("{} ({cell}), trial {trial}: {error}", job.case.name));
    }
}
