//! `siga completions` and `siga man`.

#[path = "common/commands.rs"]
mod commands;
#[path = "common/lacking.rs"]
mod lacking;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a program with this on its standard input, and returns its output, which must have no errors beside it.
fn fed(program: &mut Command, input: &[u8]) -> String {
    program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = program.spawn().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&input));
    let output = process.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{program:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The script of a shell.
fn script(shell: &str) -> Vec<u8> {
    let output = commands::siga(&["completions", shell]);
    assert!(output.status.success());
    output.stdout
}

#[test]
fn script_of_each_shell_names_no_hidden_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = script(shell);
        let text = String::from_utf8_lossy(&script);
        assert!(text.contains("volume"), "{shell}");
        assert!(!text.contains("lab-worker") && !text.contains("port-guard"), "{shell}");
    }
}

#[test]
fn bash_completes_commands_options_and_cases() {
    let test = "bash_completes_commands_options_and_cases";
    if !lacking::has_program(test, "bash", "bash") {
        return;
    }
    fed(Command::new("bash").arg("-n"), &script("bash"));
    for (words, meant) in [
        (&["siga", "qu"][..], &["query"][..]),
        (&["siga", "lab", "run", "border-c"], &["border-connect", "border-crowd"]),
        (&["siga", "lab", "list", "studi"], &["studies"]),
        (&["siga", "export", "--sec"], &["--seconds"]),
        (&["siga", "query", "das"], &["dasd"]),
        (&["siga", "lab-"], &[]),
    ] {
        let [.., before, last] = words else { unreachable!() };
        let ask = format!(
            "\nCOMP_WORDS=({}); COMP_CWORD={}; _siga siga {last} {before}; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.join(" "),
            words.len() - 1,
        );
        let output = fed(&mut Command::new("bash"), &[&script("bash"), ask.as_bytes()].concat());
        assert_eq!(output.split_whitespace().collect::<Vec<_>>(), meant, "{words:?}");
    }
}

#[test]
fn every_command_has_a_man_page_and_no_other_has() {
    let folder = std::env::temp_dir().join(format!("siga-man-{}", std::process::id()));
    let name = folder.join("man1");
    let man = || commands::siga(&["man", name.to_str().unwrap()]);
    // Nothing is made around the folder, as where completions are redirected to a file.
    let (refused, around) = (man(), folder.display());
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8(refused.stderr).unwrap();
    let right = format!(
        "No such file or directory (os error 2): make {around} first, or name another folder\n"
    );
    assert_eq!(said, format!("siga: {around}/man1 cannot be written: {right}"));
    fs::create_dir(&folder).unwrap();
    // What is there already is written anew.
    for output in [man(), man()] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let entries = fs::read_dir(&name).unwrap();
    let pages: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let page = |words: Vec<String>| [vec!["siga".to_owned()], words].concat().join("-") + ".1";
    let expected: BTreeSet<String> = commands::commands().into_iter().map(page).collect();
    assert_eq!(pages, expected);
    let test = "every_command_has_a_man_page_and_no_other_has";
    let can_format = lacking::has_program(test, "groff", "groff-base");
    for page in &pages {
        let text = fs::read(name.join(page)).unwrap();
        assert!(String::from_utf8_lossy(&text).contains(".SH SYNOPSIS"), "{page}");
        if can_format {
            fed(Command::new("groff").args(["-man", "-Tutf8", "-ww", "-z"]), &text);
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    let output = commands::siga(&["man", "/proc/siga"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.starts_with("siga: /proc/siga cannot be written: "), "{said}");
}

#[test]
fn package_has_what_the_script_makes() {
    let read = |name: &str| {
        let file = format!("{}/../{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"))
    };
    let (script, package) = (read("packaging/deb"), read("cli/Cargo.toml"));
    let made = package.lines().filter_map(|line| line.trim().strip_prefix("[\"../packaging/made/"));
    let made: Vec<&str> = made.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(made, ["man1/*.1", "siga.bash", "siga.zsh", "siga.fish"]);
    for line in
        ["made=packaging/made", "\"$siga\" man \"$made/man1\"", "for shell in bash zsh fish;"]
    {
        assert!(script.contains(line), "{line}");
    }
}
