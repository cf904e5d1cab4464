//! `siga-proof conformance`: each promise of the border is verified once, between processes.

mod check;
mod checks;
mod messages;
mod stage;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use proof::dice;

use self::check::{Check, Part, Size};
use self::checks::CHECKS;
use self::stage::{Stage, Verdict};
use crate::crew::Workplace;

/// Verifies the promises of the border, one after the other, between processes
///
/// Without names all checks are run. The seed repeats sizes, contents and choices.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The checks to run [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run them at full size: some minutes, and some gigabytes of memory
    #[arg(long)]
    long: bool,
    /// Repeat the random choices of this seed [default: any]
    #[arg(long)]
    seed: Option<u64>,
    /// How long a check may take before it counts as hanging, in seconds
    #[arg(long, default_value_t = 120)]
    patience_s: u64,
    /// List the checks, and run none
    #[arg(long)]
    list: bool,
}

/// The arguments of a child of a check.
#[derive(Debug, clap::Args)]
pub struct PartArguments {
    #[arg(long)]
    check: String,
    #[arg(long)]
    cast: usize,
    #[arg(long)]
    index: usize,
    #[arg(long)]
    directory: std::path::PathBuf,
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    long: bool,
}

/// Runs checks and prints their results.
pub fn run(arguments: &Arguments) -> ExitCode {
    if arguments.list {
        CHECKS.iter().for_each(|check| println!("{:12} {}", check.name, check.about));
        return ExitCode::SUCCESS;
    }
    let mut chosen: Vec<&Check> = Vec::new();
    for name in &arguments.names {
        let Some(check) = find(name) else {
            eprintln!("siga-proof: there is no check {name:?}: see siga-proof conformance --list");
            return ExitCode::from(2);
        };
        chosen.push(check);
    }
    if chosen.is_empty() {
        chosen.extend(CHECKS);
    }
    let seed = arguments.seed.unwrap_or_else(dice::any_seed);
    let size = if arguments.long { Size::Long } else { Size::Quick };
    let patience = Duration::from_secs(arguments.patience_s);
    println!("seed {seed}");
    let (mut held, mut skipped, mut failed) = (0, 0, Vec::new());
    for check in chosen {
        println!("{:12} {}", check.name, check.about);
        let start = Instant::now();
        let verdict = match Workplace::create() {
            Ok(workplace) => Stage { check, workplace, seed, size, patience }.play(),
            Err(error) => Verdict::Fails(vec![format!("cannot create a directory: {error}")]),
        };
        let time = start.elapsed().as_secs_f64();
        let (lines, word) = match verdict {
            Verdict::Holds(figures) => {
                held += 1;
                (figures, "holds")
            }
            Verdict::Skipped(why) => {
                skipped += 1;
                (vec![why], "SKIPPED")
            }
            Verdict::Fails(faults) => {
                failed.push(check.name);
                (faults, "DOES NOT HOLD")
            }
        };
        lines.iter().flat_map(|line| line.lines()).for_each(|line| println!("{:12} {line}", ""));
        println!("{:12} {word}, {time:.1} s", "");
    }
    println!("{held} hold, {skipped} skipped, {} do not hold", failed.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    let long = if arguments.long { " --long" } else { "" };
    println!("again: siga-proof conformance{long} --seed {seed} {}", failed.join(" "));
    ExitCode::FAILURE
}

/// Plays one part of a check, in a process of its own.
pub fn play(arguments: &PartArguments) -> ExitCode {
    crate::crew::die_with_parent(arguments.parent);
    let check = find(&arguments.check).expect("the stage knows its checks");
    let cast = &check.cast[arguments.cast];
    let part = Part {
        index: arguments.index,
        seed: arguments.seed,
        size: if arguments.long { Size::Long } else { Size::Quick },
        directory: arguments.directory.clone(),
    };
    match (cast.play)(&part) {
        Ok(figures) => {
            println!("{figures}");
            ExitCode::SUCCESS
        }
        Err(wrong) => {
            println!("{wrong}");
            ExitCode::FAILURE
        }
    }
}

fn find(name: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.name == name)
}
