//! The commands of siga, as its help lists them.

use std::process::{Command, Output};

/// Runs siga.
pub fn siga(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siga")).args(words).output().unwrap()
}

/// The help of a command.
pub fn help(words: &[&str]) -> String {
    String::from_utf8(siga(&[words, &["--help"]].concat()).stdout).unwrap()
}

/// The words of each command that is not hidden, those above others first.
pub fn commands() -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    let mut queue = vec![Vec::new()];
    while let Some(words) = queue.pop() {
        let borrowed: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = help(&borrowed);
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        let listed = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = listed.filter_map(|line| line.split_whitespace().next());
        let below = names.filter(|name| *name != "help");
        let below: Vec<Vec<String>> =
            below.map(|name| [&words[..], &[name.to_owned()]].concat()).collect();
        queue.extend(below.into_iter().rev());
        found.push(words);
    }
    found
}
