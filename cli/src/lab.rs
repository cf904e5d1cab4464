//! `siga lab`: measure.

use crate::outcome::Outcome;

/// Measure this machine: run cases, print their tables
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// Runs the lab.
pub fn run(_arguments: &Arguments) -> Result<(), Outcome> {
    Ok(())
}
