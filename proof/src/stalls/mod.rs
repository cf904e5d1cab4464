//! `siga-proof stalls`: connections of TCP between members that sleep do not stand still.
//!
//! A client and a server, each with a stack, send to each other while others want the processors. If nothing comes for a while,
//! the states of their threads tell why: one ran or waited for a processor, or all of them slept. In the last case nobody was on
//! the way to wake anybody, and only a timer of TCP would help.

mod threads;
mod trial;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use siga::Wait;
use siga::tcpip::Drive;

use self::threads::BYSTANDER;
use self::trial::{Found, Manner, Plan};
use crate::crew::{self, Workplace};

/// Short trials of TCP between members that sleep, on a busy machine: none may stand still
///
/// Prints for how long nothing came at the longest in a trial, for how long all its threads slept at once meanwhile, and for how long
/// they ran together without progress. A lost wake-up would show in the second, and a thread that polls for something that does not
/// come in the third; the first is the scheduler's on a busy machine. The watcher
/// looks each millisecond if it is not kept from it: as root, `chrt --reset-on-fork --fifo 1 siga-proof stalls`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many trials
    #[arg(long, default_value_t = 300)]
    trials: usize,
    /// How long each, in milliseconds
    #[arg(long, default_value_t = 100)]
    ms: u64,
    /// Exchange between the two sides [default: each in turn]
    #[arg(long = "manner", value_name = "MANNER")]
    manners: Vec<Manner>,
    /// How many threads take the processors from the trial
    #[arg(long, default_value_t = 2)]
    burners: usize,
    /// How long all threads of a trial may sleep at once, in milliseconds
    #[arg(long, default_value_t = 150)]
    asleep_ms: u64,
    /// Let the client sleep so long in the middle of each trial, which must be detected
    #[arg(long, default_value_t = 0)]
    nap_ms: u64,
    /// How long a trial may stand still before it is given up, in seconds
    #[arg(long, default_value_t = 60)]
    patience_s: u64,
}

const MANNERS: [Manner; 3] = [Manner::Exchange, Manner::Stream, Manner::Connect];
const WAITS: [Wait; 2] = [Wait::Block, Wait::Adaptive];
const DRIVES: [Drive; 2] = [Drive::Inline, Drive::Thread];

/// Upper ends of the classes that gaps are counted in, in milliseconds.
const CLASSES_MS: [u64; 9] = [1, 3, 10, 30, 100, 300, 900, 3000, u64::MAX];

#[derive(Debug, Default)]
struct Tally {
    trials: u64,
    items: u64,
    resent: u64,
    gaps: [u64; CLASSES_MS.len()],
    sleeps: [u64; CLASSES_MS.len()],
    longest_ns: u64,
    longest_asleep_ns: u64,
    runs: [u64; CLASSES_MS.len()],
}

impl Tally {
    fn add(&mut self, found: &Found) {
        self.trials += 1;
        self.items += found.items;
        self.resent += found.resent;
        self.gaps[class(found.still_ns)] += 1;
        self.sleeps[class(found.asleep_ns)] += 1;
        self.runs[class(found.ran_ns)] += 1;
        self.longest_ns = self.longest_ns.max(found.still_ns);
        self.longest_asleep_ns = self.longest_asleep_ns.max(found.asleep_ns);
    }
}

fn class(ns: u64) -> usize {
    let is_in = |end: &u64| ns < end.saturating_mul(1_000_000);
    CLASSES_MS.iter().position(is_in).unwrap_or(CLASSES_MS.len() - 1)
}

/// Runs the trials, and prints what was found.
pub fn run(arguments: &Arguments) -> ExitCode {
    let workplace = match Workplace::create() {
        Ok(workplace) => workplace,
        Err(error) => {
            eprintln!("siga-proof: no place for the host's socket: {error}");
            return ExitCode::from(2);
        }
    };
    let manners = if arguments.manners.is_empty() { &MANNERS[..] } else { &arguments.manners };
    let burners = Burners::start(arguments.burners);
    let (start, mut told) = (Instant::now(), Instant::now());
    let mut tally = Tally::default();
    let mut faults = Vec::new();
    for number in 0..arguments.trials {
        let plan = Plan {
            manner: manners[number % manners.len()],
            wait: WAITS[number / manners.len() % WAITS.len()],
            drive: DRIVES[number / manners.len() / WAITS.len() % DRIVES.len()],
            is_pinned: number / manners.len() / WAITS.len() / DRIVES.len() % 2 == 1,
            time: Duration::from_millis(arguments.ms),
            nap: Duration::from_millis(arguments.nap_ms),
            asleep_max: Duration::from_millis(arguments.asleep_ms),
            patience: Duration::from_secs(arguments.patience_s),
        };
        match trial::run(&plan, &crew::host_socket(workplace.directory())) {
            Ok(found) => {
                tally.add(&found);
                if found.asleep_ns >= arguments.asleep_ms * 1_000_000 {
                    faults.push(format!(
                        "trial {number}: {plan:?}: all slept for {} ms",
                        found.asleep_ns / 1_000_000
                    ));
                }
                found.scenes.iter().for_each(|scene| eprintln!("trial {number}: {scene}"));
            }
            Err(fault) => {
                faults.push(format!("trial {number}: {fault}"));
                break;
            }
        }
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            eprintln!("{} of {} trials", number + 1, arguments.trials);
        }
    }
    drop(burners);
    print!("{}", table(&tally));
    faults.iter().for_each(|fault| println!("{fault}"));
    let seconds = start.elapsed().as_secs_f64();
    let is_well = faults.is_empty();
    println!(
        "{} trials in {seconds:.1} s: {}",
        tally.trials,
        if is_well { "none stood still: all is well" } else { "NOT WELL" }
    );
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many trials had which longest gap.
fn table(tally: &Tally) -> String {
    let mut text = String::new();
    let mut line = |words: &str, cells: Vec<String>| {
        write!(text, "{words:32}").expect("a string takes any text");
        cells.iter().for_each(|cell| write!(text, " {cell:>9}").expect("a string takes any text"));
        text.push('\n');
    };
    let below = |ms: &u64| match ms {
        &u64::MAX => "more".to_owned(),
        ms => format!("< {ms} ms"),
    };
    line("trials whose longest", CLASSES_MS.iter().map(below).collect());
    let counts = |counts: &[u64]| counts.iter().map(u64::to_string).collect();
    line("time without progress was", counts(&tally.gaps));
    line("sleep of all threads was", counts(&tally.sleeps));
    line("run without progress was", counts(&tally.runs));
    let ms = |ns: u64| ns as f64 / 1e6;
    let Tally { items, resent, longest_ns, longest_asleep_ns, .. } = tally;
    let (longest, asleep) = (ms(*longest_ns), ms(*longest_asleep_ns));
    writeln!(
        text,
        "{items} messages and connections; segments sent again {resent}; longest {longest:.1} ms, longest sleep of all {asleep:.1} ms"
    )
    .expect("a string takes any text");
    text
}

/// Threads that take processors from others.
struct Burners {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Burners {
    fn start(count: usize) -> Burners {
        let is_over = Arc::new(AtomicBool::new(false));
        let burner = |_| {
            let is_over = is_over.clone();
            let burn = move || while !is_over.load(Ordering::Relaxed) {};
            Builder::new().name(BYSTANDER.to_owned()).spawn(burn).ok()
        };
        Burners { threads: (0..count).filter_map(burner).collect(), is_over }
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
