//! `siga-proof torture`: guests stream checked data in a mesh, and are killed; another exhausts.

pub mod birth;
mod blackbox;
pub mod guest;
pub mod hoarder;
pub mod host;
mod ledger;
mod schedule;
mod supervisor;
mod wire;

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proof::dice;
use proof::hoard::Exhaustion;

use self::schedule::{Act, Kind, Wanted};
use self::supervisor::{Fault, Supervisor, Terms};
use self::wire::GUESTS_MAX;

/// Guests stream checked data in a mesh; guests and the host are killed at random and started again
///
/// Every survivor must be notified of a death in time. No message may be corrupt, duplicated or lost without
/// a report. No process may hold more resources afterwards than before. A guest that uses up a resource must
/// get errors that name the resource, and all others must go on. The seed repeats the schedule.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many processes to kill, at least
    #[arg(long, default_value_t = 100)]
    kills: usize,
    /// How often a guest uses a resource up, frees it, and has to work again
    #[arg(long, default_value_t = 0)]
    exhaustions: usize,
    /// Use up only this resource [default: all that this machine allows, in turn]
    #[arg(long = "exhaustion", value_name = "KIND")]
    kinds: Vec<Exhaustion>,
    /// Repeat the schedule of this seed [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of guests
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=GUESTS_MAX as u64))]
    guests: u64,
    /// How long after the end of a process its survivors may be notified, in milliseconds
    #[arg(long, default_value_t = 100)]
    severed_ms: u64,
    /// How long a step may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 30)]
    patience_s: u64,
    /// Print the schedule, and kill no process
    #[arg(long)]
    show: bool,
}

/// Runs the torture.
pub fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(dice::any_seed);
    let guests = arguments.guests as usize;
    let (kills, exhaustions) = (arguments.kills, arguments.exhaustions);
    let kinds = match arguments.kinds.is_empty() {
        true => Exhaustion::possible(),
        false => arguments.kinds.clone(),
    };
    let schedule = schedule::draw(seed, &Wanted { kills, exhaustions, kinds, guests });
    println!("seed {seed}, {guests} guests");
    if arguments.show {
        schedule.iter().for_each(|act| println!("{act}"));
        return ExitCode::SUCCESS;
    }
    let terms = Terms {
        guests,
        hoarder: exhaustions > 0,
        severed_within: Duration::from_millis(arguments.severed_ms),
        patience: Duration::from_secs(arguments.patience_s),
    };
    let mut supervisor = match Supervisor::new(terms) {
        Ok(supervisor) => supervisor,
        Err(error) => {
            eprintln!("siga-proof: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let start = Instant::now();
    let fault = kill_all(&mut supervisor, &schedule).err();
    if let Some(Fault(what)) = &fault {
        eprintln!("\n{what}\n{}", supervisor.scene());
    }
    let (text, good) = verdict(&supervisor, seed, fault.as_ref(), start.elapsed());
    print!("{text}");
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Performs the schedule, and prints its progress.
fn kill_all(supervisor: &mut Supervisor, schedule: &[Act]) -> Result<(), Fault> {
    supervisor.start_all()?;
    let is_deed = |act: &&Act| matches!(act, Act::Kill(..) | Act::Exhaust(..));
    let deeds = |acts: &[Act]| acts.iter().filter(is_deed).count();
    let (all, mut done) = (deeds(schedule), 0);
    let mut told = Instant::now();
    // From one settled mesh to the next, so that kills that belong together stay together.
    for acts in schedule.split_inclusive(|act| *act == Act::Settle) {
        supervisor.perform(acts)?;
        done += deeds(acts);
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            let found = supervisor.found();
            eprintln!(
                "{done} of {all} kills and exhaustions, {} messages verified",
                found.messages
            );
        }
    }
    Ok(())
}

/// What has been found, in words, and whether it is good.
fn verdict(
    supervisor: &Supervisor,
    seed: u64,
    fault: Option<&Fault>,
    time: Duration,
) -> (String, bool) {
    let (tally, found) = (supervisor.tally(), supervisor.found());
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    line(format!("kills {} in {:.1} s", tally.kills.values().sum::<u64>(), time.as_secs_f64()));
    for kind in Kind::ALL {
        line(format!("  {:5} {}", tally.kills.get(&kind).unwrap_or(&0), kind.words()));
    }
    if !tally.exhaustions.is_empty() {
        let exhaustions = tally.exhaustions.values().sum::<u64>();
        line(format!("exhaustions {exhaustions}, each named by its errors; all others went on"));
    }
    for (exhaustion, times) in &tally.exhaustions {
        line(format!("  {times:5} {}", exhaustion.words()));
    }
    line(format!(
        "messages received and verified {}, {:.1} GB; {} unfinished by the dead, {} unread by the dead",
        found.messages,
        found.bytes as f64 / 1e9,
        found.unfinished,
        found.unread
    ));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    line(format!(
        "messages of IUCV unanswered at a death {}, each reported to its source; {} were purged",
        found.unanswered, found.purged
    ));
    line(format!("paths severed {}, {} half made by a dead host", found.severed, found.half_made));
    line(format!(
        "the slowest survivor was notified {:.1} ms after the end of a process, {:.1} ms after the kill; the slowest end took {:.1} ms",
        ms(found.worst_after_end),
        ms(found.worst_after_kill),
        ms(found.dying)
    ));
    line(format!("inspections for leaks {}, leaks {}", tally.inspections, tally.leaks.len()));
    for (role, footprint) in &tally.footprints {
        line(format!("  {role}: {footprint}"));
    }
    let mut faults: Vec<String> = Vec::new();
    faults.extend(found.late.iter().map(|late| format!("late: {late}")));
    faults.extend(tally.leaks.iter().map(|leak| format!("leak: {leak}")));
    faults.extend(fault.map(|Fault(what)| format!("fault: {what}")));
    faults.iter().for_each(|fault| line(fault.clone()));
    let good = faults.is_empty();
    line(if good { "all is well".into() } else { format!("NOT WELL, seed {seed}") });
    (text, good)
}
