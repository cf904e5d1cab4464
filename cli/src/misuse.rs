//! Words of a command line that siga does not know: one line says which was probably meant.

use std::process::ExitCode;

use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command};
use host::near::{near, question};

use crate::output::say;

/// Ends after a command line that was not understood, or that asks for help.
pub fn exit(error: &clap::Error, program: &mut Command) -> ExitCode {
    program.build();
    let words = std::env::args_os().skip(1).filter_map(|word| word.into_string().ok());
    let words: Vec<String> = words.collect();
    if let Some(command) = explained(program, &words) {
        // A reader that is gone has read enough.
        let _ = command.clone().print_long_help();
        return ExitCode::SUCCESS;
    }
    if let Some((command, value)) = valued(program, &words) {
        let (name, help) = (command.get_bin_name().unwrap_or("siga"), value.get_help());
        let help = help.map(|help| format!(": {help}")).unwrap_or_default();
        let help =
            format!("{name} {}{help}\n\n{}", value.get_name(), command.clone().render_long_help());
        // A reader that is gone has read enough.
        let _ = crate::output::print(help.trim_end());
        return ExitCode::SUCCESS;
    }
    let command = named(program, words.into_iter());
    match sentence(error, command) {
        Some(sentence) => say(format_args!("siga: {sentence}")),
        // A reader that is gone has read enough.
        None => drop(error.print()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The command that these words name: `siga lab run` of `lab run --quick`.
fn named(program: &Command, words: impl Iterator<Item = String>) -> &Command {
    let mut command = program;
    for word in words {
        match command.find_subcommand(&word) {
            Some(next) => command = next,
            None => break,
        }
    }
    command
}

/// The command whose help `siga help run --help` asks for, which is not wrong, if too much. None of anything else.
fn explained<'a>(program: &'a Command, words: &[String]) -> Option<&'a Command> {
    let (last, words) = words.split_last()?;
    let is_asked_twice =
        matches!(last.as_str(), "-h" | "--help") && words.iter().any(|word| word == "help");
    let words = words.iter().filter(|word| *word != "help");
    let mut command = program;
    for word in words {
        command = command.find_subcommand(word)?;
    }
    is_asked_twice.then_some(command)
}

/// The command, and the value of one of its words, whose help `siga help query line` asks for. None of anything else.
fn valued<'a>(program: &'a Command, words: &[String]) -> Option<(&'a Command, PossibleValue)> {
    let [help, commands @ .., value] = words else { return None };
    let mut command = program;
    for word in commands {
        command = command.find_subcommand(word)?;
    }
    let mut values = command.get_positionals().flat_map(Arg::get_possible_values);
    let value = values.find(|known| help == "help" && known.matches(value, false))?;
    Some((command, value))
}

/// A line about an unknown word. None for everything else that can be wrong, which clap says well.
fn sentence(error: &clap::Error, command: &Command) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) if !text.is_empty() => Some(text.as_str()),
        _ => None,
    };
    let name = command.get_bin_name().unwrap_or("siga");
    let all = format!("{name} --help shows all");
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let word = text(ContextKind::InvalidArg)?;
            if !word.starts_with('-') {
                return Some(format!(
                    "{name} does not take {word:?}: {name} --help shows what it takes"
                ));
            }
            let options = command.get_arguments().filter(|option| !option.is_hide_set());
            let options: Vec<String> =
                options.filter_map(|option| Some(format!("--{}", option.get_long()?))).collect();
            let meant = question(&near(word, options.iter().map(String::as_str)));
            Some(format!("there is no option {word}: {}", meant.unwrap_or(all)))
        }
        ErrorKind::InvalidSubcommand => {
            let word = text(ContextKind::InvalidSubcommand)?;
            let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
            let meant = question(&near(word, commands.map(Command::get_name)));
            Some(format!("there is no command {name} {word}: {}", meant.unwrap_or(all)))
        }
        ErrorKind::InvalidValue => {
            let word = text(ContextKind::InvalidValue)?;
            let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else {
                return None;
            };
            let of = text(ContextKind::InvalidArg)?;
            // As clap draws it: `--wait <WAIT>`, `[WHAT]...`.
            let of = of.split(" <").next()?.trim_matches(['[', ']', '<', '>', '.']);
            let right = host::near::right(word, known);
            Some(format!("{of} {word}: {right}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::Arguments;

    fn said(words: &[&str]) -> Option<String> {
        let error = Arguments::try_parse_from(["siga"].iter().chain(words)).unwrap_err();
        let mut program = Arguments::command();
        program.build();
        let words = words.iter().map(|word| (*word).to_owned());
        sentence(&error, named(&program, words))
    }

    #[test]
    fn value_of_a_word_has_help_too() {
        let valued = |words: &[&str]| {
            let program = Arguments::command();
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            valued(&program, &words).map(|(_, value)| value.get_help().unwrap().to_string())
        };
        let line = valued(&["help", "query", "line"]).unwrap();
        assert!(line.starts_with("The lines that the system file describes"), "{line}");
        for words in [&["help", "query", "lnie"][..], &["query", "line"], &["help", "line"], &[]] {
            assert_eq!(valued(words), None, "{words:?}");
        }
    }

    #[test]
    fn unknown_word_is_said_in_one_line_with_the_word_that_was_meant() {
        for (words, line) in [
            (
                &["run", "--nmae", "x", "--", "true"][..],
                "there is no option --nmae: did you mean --name?",
            ),
            (
                &["run", "--frob", "--", "true"],
                "there is no option --frob: siga run --help shows all",
            ),
            (&["lab", "run", "--qick"], "there is no option --qick: did you mean --quick?"),
            (&["recieve"], "there is no command siga recieve: did you mean receive?"),
            (&["lab", "lsit"], "there is no command siga lab lsit: did you mean list?"),
            (&["xyzzy"], "there is no command siga xyzzy: siga --help shows all"),
            (&["query", "lna"], "WHAT lna: did you mean lan?"),
            (&["run", "--wait", "spn", "true"], "--wait spn: did you mean spin?"),
            (&["run", "--wait", "7", "true"], "--wait 7: must be one of block, adaptive, spin"),
            (
                &["send", "A", "B", "C"],
                "siga send does not take \"C\": siga send --help shows what it takes",
            ),
        ] {
            assert_eq!(said(words).as_deref(), Some(line), "{words:?}");
        }
        assert_eq!(said(&["send", "A"]), None, "clap says what is missing");
        assert_eq!(said(&["--help"]), None);
    }

    #[test]
    fn help_that_is_asked_for_twice_is_of_the_command_named() {
        let mut program = Arguments::command();
        program.build();
        let explained = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let command = explained(&program, &words)?;
            Some(command.get_bin_name().unwrap_or(command.get_name()).to_owned())
        };
        for (words, name) in [
            (&["help", "--help"][..], Some("siga")),
            (&["help", "run", "-h"], Some("siga run")),
            (&["help", "lab", "run", "--help"], Some("siga lab run")),
            (&["lab", "help", "--help"], Some("siga lab")),
            (&["lab", "help", "run", "--help"], Some("siga lab run")),
            (&["help", "nosuch", "--help"], None),
            (&["help", "nosuch"], None),
            (&["help"], None),
            (&["run", "--nmae", "--help"], None),
        ] {
            assert_eq!(explained(words).as_deref(), name, "{words:?}");
        }
    }

    #[test]
    fn words_after_the_program_are_the_programs() {
        let words = ["siga", "run", "--name", "web", "ls", "--nmae", "-l"];
        assert!(Arguments::try_parse_from(words).is_ok());
        assert!(Arguments::try_parse_from(["siga", "run", "--", "--nmae"]).is_ok());
    }
}
