//! The arguments with which each process of the torture is started.

use std::path::{Path, PathBuf};

use crate::crew;

/// Where it lives, and for whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Birth {
    /// Where everything is
    #[arg(long)]
    pub directory: PathBuf,
    /// The process that started it
    #[arg(long)]
    parent: u32,
    /// Which of its lives
    #[arg(long)]
    pub life: u32,
}

impl Birth {
    /// These arguments as words of a command line, for a child that the caller starts.
    pub fn words(command: &str, directory: &Path, life: u32) -> Vec<String> {
        vec![
            command.into(),
            format!("--directory={}", directory.display()),
            format!("--parent={}", std::process::id()),
            format!("--life={life}"),
        ]
    }

    /// The process ends with the one that started it from now on.
    pub fn die_with_parent(&self) {
        crew::die_with_parent(self.parent);
    }
}
