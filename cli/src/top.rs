//! `siga top`.

use crate::outcome::Outcome;

/// To come
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// To come.
pub fn run(_arguments: &Arguments) -> Result<(), Outcome> {
    Ok(())
}
