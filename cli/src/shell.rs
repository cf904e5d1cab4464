//! `siga completions` and `siga man`: what a shell and a reader of manuals need beside the program.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::error::Error;
use clap::{Arg, Command};
use clap_complete::Shell;

use crate::outcome::Outcome;
use crate::output::print;

/// Print a script that completes commands, options and names of cases
///
/// For bash: siga completions bash > ~/.local/share/bash-completion/completions/siga. For zsh: into a file _siga in a folder of $fpath. For
/// fish: into ~/.config/fish/completions/siga.fish. The Debian package has these three.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write a man page for each command into a folder
///
/// For one user: mkdir -p ~/.local/share/man, siga man ~/.local/share/man/man1, then man siga-lab-run. The Debian package has them.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Man {
    /// The folder, which is made if it is not there; the one around it has to be there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Prints the script of a shell.
pub fn completions(arguments: &Completions, program: &Command) -> Result<(), Outcome> {
    // The scripts would offer hidden commands too.
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    let mut shown = Command::new("siga").version("").subcommands(commands.cloned());
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut shown, "siga", &mut script);
    print(String::from_utf8_lossy(&script).trim_end())
}

/// Writes the man pages. A folder whose name was mistyped is not made with all that is above it: no file that siga writes is.
pub fn man(Man { folder }: &Man, program: Command) -> Result<(), Outcome> {
    let made = match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let written = made.and_then(|()| clap_mangen::generate_to(program, folder));
    written.map_err(|error| {
        let around = folder
            .parent()
            .filter(|around| error.kind() == ErrorKind::NotFound && !around.is_dir());
        let right = around
            .map(|around| format!(": make {} first, or name another folder", around.display()));
        let right = right.unwrap_or_default();
        Outcome::No(format!("{} cannot be written: {error}{right}", folder.display()))
    })
}

/// Takes any text, as names of cases can be names of files too, and completes it with the names of the cases and groups that come with siga.
#[derive(Clone, Copy, Debug)]
pub struct CaseName;

impl TypedValueParser for CaseName {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let cases = lab::library::cases().into_iter();
        let mut names: Vec<String> =
            cases.flat_map(|case| case.group.into_iter().chain([case.name])).collect();
        names.sort_unstable();
        names.dedup();
        Some(Box::new(names.into_iter().map(PossibleValue::new)))
    }
}
