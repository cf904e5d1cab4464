//! `siga-proof shards`: connections that move between the shards of a stack, and what a second shard brings.

mod party;
mod run;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use self::run::{Found, Plan, run};

/// Connections between two stacks with shards: they move in order, and two threads do more than one
///
/// First ends of connections move from shard to shard while requests and replies of 200 and 1000 bytes flow; each byte is verified, and no
/// segment may come behind a gap. Threads sleep when they have nothing to do. Then nothing moves, threads do not sleep, and the rate of two
/// shards on two threads, each with the programs at both ends of its connections, is compared with that of one shard on one thread, in
/// turn.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// How many shards
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=64))]
    shards: u64,
    /// How many connections
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=4096))]
    connections: u64,
    /// How many moves
    #[arg(long, default_value_t = 10_000)]
    moves: u64,
    /// How many comparisons
    #[arg(long, default_value_t = 9)]
    trials: usize,
    /// How long a rate is measured, in milliseconds
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: u64,
    /// Begins the random numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run_command(arguments: &Arguments) -> ExitCode {
    match prove(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            println!("shards: {error}");
            ExitCode::from(1)
        }
    }
}

fn prove(arguments: &Arguments) -> Result<bool, String> {
    let plan = Plan {
        shards: arguments.shards as usize,
        connections: arguments.connections as usize,
        moves: arguments.moves,
        time: Duration::from_millis(arguments.ms),
        seed: arguments.seed,
    };
    let mut is_right = true;
    if plan.moves > 0 {
        let Found { rounds, moves, resent, out_of_order, resets, .. } = run(plan)?;
        println!(
            "{moves} moves of the ends of {} connections between {} shards, {rounds} requests and replies verified (seed {}):\n\
             {out_of_order} segments out of order, {resent} sent again, {resets} resets",
            plan.connections, plan.shards, plan.seed
        );
        is_right &= [out_of_order, resent, resets] == [0; 3];
    }
    if arguments.trials == 0 {
        return Ok(is_right);
    }
    if os::processor::allowed().len() < plan.shards {
        eprintln!("SKIPPED: a rate of {} shards needs as many processors", plan.shards);
        return Ok(is_right);
    }
    let mut rates = [Vec::new(), Vec::new()];
    let mut ratios = Vec::new();
    for trial in 0..arguments.trials {
        let mut of_trial = [0.0; 2];
        for turn in 0..2 {
            let which = (trial + turn) % 2;
            let shards = [1, plan.shards][which];
            let found = run(Plan { shards, moves: 0, ..plan })?;
            is_right &= found.out_of_order == 0 && found.resets == 0;
            of_trial[which] = found.rounds as f64 / found.seconds;
            rates[which].push(of_trial[which]);
        }
        ratios.push(of_trial[1] / of_trial[0]);
    }
    for (shards, rates) in [1, plan.shards].iter().zip(&mut rates) {
        let [low, middle, high] = spread(rates);
        println!("{shards} shards: {middle:.0} rounds a second ({low:.0} to {high:.0})");
    }
    let [low, middle, high] = spread(&mut ratios);
    println!("ratio {middle:.2} ({low:.2} to {high:.2}), {} pairs in turn", ratios.len());
    Ok(is_right)
}

/// Least, median and greatest.
fn spread(values: &mut [f64]) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}
