//! `siga-proof sleeps`: no wake-up is lost on this hardware.
//!
//! Two threads on two processors sleep for each other without a time limit, over memory that is lent as
//! usual. If a wake-up is lost, both sleep for ever.

mod nap;
mod round;
mod scene;

use std::fmt::{Display, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use proof::dice::{self, Dice};

use self::nap::{Counts, Flaw};
use self::round::{Fault, Plan, Who};
use self::scene::Scene;

/// Two sides sleep for each other without a time limit, and no wake-up may be lost
///
/// A sleep is an announcement, a last poll, and a wait for the doorbell if that poll found nothing. The seed
/// repeats what the sides do, not their timing.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many sleeps, at least
    #[arg(long, default_value_t = 2_000_000)]
    sleeps: u64,
    /// Repeat the random choices of this seed [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// How long both sides may sleep until a wake-up counts as lost, in seconds
    #[arg(long, default_value_t = 10)]
    lost_after_s: u64,
    /// Let one side of each path leave out a step of its sleeps, which must be detected
    #[arg(long)]
    flaw: Option<Flaw>,
}

/// Sleeps of one path at most: others have other delays and run on other processors.
const SLEEPS_PER_ROUND: u64 = 200_000;

/// How often all scenes are played, if that leaves enough sleeps for each.
const ROUNDS: u64 = 8;

/// Sleeps of one path at least.
const SLEEPS_PER_ROUND_MIN: u64 = 1000;

/// Sleeps, and prints the result.
pub fn run(arguments: &Arguments) -> ExitCode {
    let seed = arguments.seed.unwrap_or_else(dice::any_seed);
    let processors = os::processor::allowed();
    if processors.len() < 2 {
        eprintln!("siga-proof: two processors are needed, and this process may use one");
        return ExitCode::from(2);
    }
    println!("seed {seed}, {} processors", processors.len());
    let start = Instant::now();
    let mut tally = [[Counts::default(); 2]; Scene::ALL.len()];
    let fault = sleep(arguments, seed, &processors, &mut tally).err();
    print!("{}", table(&tally));
    let seconds = start.elapsed().as_secs_f64();
    let sleeps: u64 = tally.iter().flatten().map(|side| side.announced).sum();
    match fault {
        None => {
            println!(
                "{sleeps} untimed sleeps in {seconds:.1} s, and no wake-up was lost: all is well"
            );
            ExitCode::SUCCESS
        }
        Some(fault) => {
            println!("{fault}NOT WELL after {sleeps} sleeps in {seconds:.1} s, seed {seed}");
            ExitCode::FAILURE
        }
    }
}

const WHO: [Who; 2] = [Who::Writer, Who::Reader];

/// Plays rounds until there were enough sleeps.
fn sleep(
    arguments: &Arguments,
    seed: u64,
    processors: &[usize],
    tally: &mut [[Counts; 2]; Scene::ALL.len()],
) -> Result<(), Fault> {
    let mut dice = Dice::new(seed);
    let shares: u64 = Scene::ALL.len() as u64 * ROUNDS;
    let share = (arguments.sleeps / shares).clamp(SLEEPS_PER_ROUND_MIN, SLEEPS_PER_ROUND);
    let mut told = Instant::now();
    let mut done = 0;
    for scene in (0..Scene::ALL.len()).cycle() {
        if done >= arguments.sleeps {
            break;
        }
        let mut two = processors.to_vec();
        dice.shuffle(&mut two);
        let plan = Plan {
            scene: Scene::ALL[scene],
            seed: dice.number(),
            sleeps: share / Scene::ALL[scene].weight(),
            processors: [two[0], two[1]],
            lost_after: Duration::from_secs(arguments.lost_after_s),
            flaw: arguments.flaw.map(|flaw| (WHO[dice.below(2)], flaw)),
        };
        let counts = round::play(&plan)?;
        for (all, side) in tally[scene].iter_mut().zip(&counts) {
            all.add(side);
            done += side.announced;
        }
        if told.elapsed() >= Duration::from_secs(1) {
            told = Instant::now();
            eprintln!("{done} of {} sleeps", arguments.sleeps);
        }
    }
    Ok(())
}

/// How many sleeps of each kind there were.
fn table(tally: &[[Counts; 2]; Scene::ALL.len()]) -> String {
    let mut text = String::new();
    let mut line = |words: &str, cells: [&dyn Display; 5]| {
        write!(text, "{words:36}").expect("a string takes any text");
        cells.iter().for_each(|cell| write!(text, " {cell:>11}").expect("a string takes any text"));
        text.push('\n');
    };
    line("sleeps of", [&"announced", &"last poll", &"listened", &"blocked", &"rings heard"]);
    let mut all = Counts::default();
    let mut counted = |words: &str, counts: &Counts| {
        let Counts { announced, caught, listened, blocked, rung } = counts;
        line(words, [announced, caught, listened, blocked, rung]);
    };
    for (scene, sides) in Scene::ALL.iter().zip(tally) {
        for (words, counts) in scene.sleeps_for().iter().zip(sides) {
            counted(words, counts);
            all.add(counts);
        }
    }
    counted("all", &all);
    text
}
